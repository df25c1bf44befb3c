"""The events of a session as a client hears them: parsed, kept for who asks, taken up again when the connection breaks.

A gap is said and never hidden; what was missed in it is for the reader of the log. Never shows anything.
"""

import json
import queue
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from typing import Any, NamedTuple, Self

import httpx

from web.client import TIMEOUT_S, Away, Client, ClientError, Refused

RETRY_S = (0.2, 5.0)
MAX_LINE_BYTES = 8_000_000
QUEUE = 4096
# Answers of a server that is there and cannot serve a stream just now.
BUSY = (429, 500, 502, 503, 504)


class Event(NamedTuple):
    """One server-sent event. The name `lost` is ours: what happened before it may never have been heard."""

    name: str
    data: dict[str, Any]
    id: str = ""


class Stream:
    """The events of one session, read by a thread of their own and kept until they are asked for.

    Opening it raises `Away` or `Refused`; once open it comes back by itself, with a `lost` event, whenever the
    connection breaks, until the server refuses it for good.
    """

    def __init__(self, client: Client, session: str) -> None:
        self._client = client
        self._session = session
        self._heard: queue.Queue[Event | None] = queue.Queue(QUEUE)
        self._closed = threading.Event()
        self._last_id = ""
        self._failure: ClientError | None = None
        self._since = 0.0
        self._response = client.events(session)
        self._thread = threading.Thread(target=self._run, name="outrider-events", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def next(self, timeout: float) -> Event | None:
        """The next event; None after `timeout` seconds, or after `wake`. Raises `Refused` once refused for good."""
        try:
            event = self._heard.get(timeout=timeout)
        except queue.Empty:
            event = None
        if event is None and self._failure:
            raise self._failure
        return event

    def wake(self) -> None:
        """Ends the wait of whoever waits in `next`."""
        self._put(None)

    @property
    def away_s(self) -> float:
        """For how long there has been no connection, in seconds."""
        return time.monotonic() - self._since if self._since else 0.0

    def close(self) -> None:
        """Lets the server go. Nothing is canceled by this."""
        self._closed.set()
        _hang_up(self._response)
        self._thread.join(TIMEOUT_S)

    def _run(self) -> None:
        while not self._closed.is_set():
            self._read()
            self._since = time.monotonic()
            if not self._reconnect():
                break
            self._since = 0.0
            self._put(Event("lost", {}))
        self._response.close()

    def _read(self) -> None:
        with closing(self._response):
            try:
                for event in events(lines(self._response.iter_bytes())):
                    self._last_id = event.id or self._last_id
                    self._put(event)
                    if self._closed.is_set():
                        return
            except (httpx.RequestError, httpx.StreamError, ValueError):
                return  # a broken connection and a broken event are mended in the same way: by a new connection

    def _reconnect(self) -> bool:
        pause, most = RETRY_S
        while not self._closed.wait(pause):
            try:
                self._response = self._client.events(self._session, self._last_id)
                return True
            except Refused as problem:
                if problem.status not in BUSY:
                    self._failure = problem
                    self._put(None)
                    return False
            except Away:
                pass
            pause = min(pause * 2, most)
        return False

    def _put(self, event: Event | None) -> None:
        """Waits where nobody listens: the server then drops us, and the log is read again."""
        while not self._closed.is_set():
            try:
                self._heard.put(event, timeout=0.2)
            except queue.Full:
                continue
            return


def lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Whole lines. Only a line feed ends one: inside JSON, U+2028 and the like may stand as they are."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise ValueError("a line of the event stream is too long")
        for line in whole:
            yield line.removesuffix(b"\r").decode("utf-8", "replace")


def events(stream: Iterable[str]) -> Iterator[Event]:
    """The events in the lines of a server-sent stream. Raises ValueError for data that is not a JSON object."""
    fields: dict[str, str] = {}
    for line in stream:
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
        else:
            if "data" in fields or "event" in fields:
                yield _event(fields)
            fields = {}


def _event(fields: dict[str, str]) -> Event:
    data = json.loads(fields.get("data") or "{}")
    if not isinstance(data, dict):
        raise ValueError("an event's data is a JSON object")
    return Event(fields.get("event", "message"), data, fields.get("id", ""))


def _hang_up(response: httpx.Response) -> None:
    """Closing alone would leave a reader in another thread waiting for its next byte; shutting the socket does not."""
    network = response.extensions.get("network_stream")
    connection = network.get_extra_info("socket") if network else None
    with suppress(OSError):  # closed already
        if connection is not None:
            connection.shutdown(socket.SHUT_RDWR)
