"""F180, A84: nobody is waited for without end, and what comes slowly is not held without bound; what is announced as too large is not read."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.limits import raw
from tests.support.server import Server, free_port, wait
from web import bodies, head
from web.bodies import TooLarge, TooSlow, Unfinished
from web.head import BoundedHead

SCOPE: dict[str, Any] = {"headers": []}


def piece(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


class Line:
    """A client's connection, as the reader of a body sees it."""

    def __init__(self, *pieces: dict[str, Any]) -> None:
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for each in pieces:
            self.send(each)

    def send(self, sent: dict[str, Any]) -> None:
        self._queue.put_nowait(sent)

    async def receive(self) -> dict[str, Any]:
        return await self._queue.get()


def test_a_body_that_does_not_go_on_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SILENT_S", 0.05)
    for begun in ([], [piece(b"half")]):
        with pytest.raises(TooSlow):
            asyncio.run(bodies.whole(SCOPE, Line(*begun).receive))


def test_a_body_that_goes_on_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SILENT_S", 0.2)

    async def trickle() -> bytes:
        line = Line()
        reading = asyncio.create_task(bodies.whole(SCOPE, line.receive))
        for _ in range(4):
            await asyncio.sleep(0.08)
            line.send(piece(b"x"))
        line.send(piece(b"y", more=False))
        return await reading

    assert asyncio.run(trickle()) == b"xxxxy"


def test_of_more_unfinished_bodies_than_may_be_held_the_most_silent_are_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "_unfinished", Unfinished(100))

    async def crowd() -> list[bytes | BaseException]:
        lines = [Line(piece(b"x" * 40)) for _ in range(3)]
        reading = [asyncio.create_task(bodies.whole(SCOPE, line.receive)) for line in lines]
        await asyncio.wait(reading, timeout=5, return_when=asyncio.FIRST_COMPLETED)  # who was heard of longest ago
        for line in lines:
            line.send(piece(b"y", more=False))
        ended = list(await asyncio.gather(*reading, return_exceptions=True))
        assert await bodies.whole(SCOPE, Line(piece(b"z" * 90), piece(b"", more=False)).receive) == b"z" * 90
        return ended

    first, *others = asyncio.run(crowd())
    assert isinstance(first, TooSlow)
    assert others == [b"x" * 40 + b"y"] * 2


def test_a84_what_is_announced_as_too_large_is_not_read() -> None:
    async def never() -> dict[str, Any]:
        raise AssertionError("read")

    announced: dict[str, Any] = {"headers": [(b"content-length", b"50000000")]}
    with pytest.raises(TooLarge):
        asyncio.run(bodies.whole(announced, never))


@pytest.mark.parametrize("path", ["/a2a", "/a2a/rest/message:send", "/api/background"])
def test_a84_who_asks_before_sending_too_much_is_told_so_at_once(server: Server, path: str) -> None:
    asked = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nA2A-Version: 1.0\r\nContent-Length: 50000000\r\n"
    answer = raw.sent(server, asked.encode() + b"Expect: 100-continue\r\n\r\n")
    assert answer.status == (200 if path == "/a2a" else 413) and b"TOO_LARGE" in answer.body


@contextmanager
def served() -> Iterator[int]:
    """A server of nothing, on our kind of connection: the port."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("here")(scope, receive, send)

    port = free_port()
    config = uvicorn.Config(app, "127.0.0.1", port, http=BoundedHead, ws="none", lifespan="off", log_level="critical")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait(lambda: server.started)
        yield port
    finally:
        server.should_exit = True
        thread.join(10)


@pytest.mark.parametrize(
    ("begun", "answer"),
    [
        (b"", b""),
        (b"GET /", b"408"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", b"408"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /", b"408"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf", b"200"),  # of a body that nobody reads
    ],
    ids=["nothing", "line", "headers", "second", "body"],
)
def test_f180_a_request_that_does_not_go_on_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch, begun: bytes, answer: bytes
) -> None:
    monkeypatch.setattr(head, "HEAD_S", 0.2)
    monkeypatch.setattr(head, "BODY_S", 0.2)
    with served() as port, socket.create_connection(("127.0.0.1", port), timeout=4) as connection:
        connection.sendall(begun)
        received = to_its_end(connection)
        assert answer in received and (answer or not received)


def test_f180_a_line_break_after_a_request_keeps_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "HEAD_S", 0.2)
    monkeypatch.setattr(head, "BODY_S", 0.2)
    with served() as port, socket.create_connection(("127.0.0.1", port), timeout=4) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in connection.recv(65_536)
        connection.sendall(b"\r\n")
        to_its_end(connection)


def to_its_end(connection: socket.socket) -> bytes:
    """All that comes until the other side closes, which uvicorn would not do before the connection's time is over."""
    received = b""
    while some := connection.recv(65_536):
        received += some
    return received
