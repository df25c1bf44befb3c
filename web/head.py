"""A connection as uvicorn has it, with limits that its parser does not have: how long a head is, and how long one waits.

A head, a request's line and headers, that is over its limit is answered with 431 before anybody else has heard of it.
A request that was begun and does not go on ends its connection, with 408 where nobody has heard of it yet.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_LIMIT = 65_536  # bytes, of the line and all headers together
HEAD_S = 30.0  # from a connection's or a head's first byte to the head's end
BODY_S = 40.0  # without a byte of a body; who reads it is less patient, so this is for what nobody reads
PLACES = 4  # beside a name and its value: a colon, a blank and the end of the line


class _TooLong(Exception):
    """Stops the parser."""


class BoundedHead(HttpToolsProtocol):
    """uvicorn's connection, with those limits."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._in_head, self._read, self._too_long = True, 0, False
        self._owes = True  # the client: a head, or the rest of one or of a body
        self._heard_at = self.loop.time()
        self._clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._clock is not None:
            self._clock.cancel()

    def data_received(self, data: bytes) -> None:
        if not (self._owes and self._in_head):  # of a head the time counts from its beginning
            self._heard_at = self.loop.time()
        self._owes = True  # whatever comes, be it only a line break, until it turns out to be the end of a request
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._read += len(data)
            if self._read > HEAD_LIMIT:  # and its end is not in sight
                self._refuse()
        self._watch()

    def on_message_begin(self) -> None:
        self._owes, self._in_head, self._read = True, True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        if len(self.url) + sum(len(name) + len(value) + PLACES for name, value in self.headers) > HEAD_LIMIT:
            self._too_long = True
            raise _TooLong
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._owes = False

    def send_400_response(self, msg: str) -> None:
        if self._too_long:
            self._refuse()
        else:
            super().send_400_response(msg)

    def _watch(self) -> None:
        """Look again when the client's time is over, unless that is done already or the client owes nothing."""
        if self._owes and self._clock is None and not self.transport.is_closing():
            due = self._heard_at + (HEAD_S if self._in_head else BODY_S)
            self._clock = self.loop.call_at(due, self._look)

    def _look(self) -> None:
        self._clock = None
        if not self._owes or self.transport.is_closing():
            return
        now = self.loop.time()
        if self.flow.read_paused:  # by us: it could not go on
            self._heard_at = now
        if now < self._heard_at + (HEAD_S if self._in_head else BODY_S):
            self._watch()
        elif self.scope is not None and self._in_head and (self.cycle is None or self.cycle.response_complete):
            self._end("408 Request Timeout", "The request did not come in time.")
        else:
            self.transport.close()

    def _refuse(self) -> None:
        said = f"The request line and its headers are larger than {HEAD_LIMIT} bytes."
        self._end("431 Request Header Fields Too Large", said)

    def _end(self, status: str, said: str) -> None:
        head = (
            f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(said)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(f"{head}{said}".encode())
        self.transport.close()
