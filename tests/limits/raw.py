"""Requests that no client library would send: bytes on a socket, and whatever comes back until the connection closes."""

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from tests.support.server import Server


class Answer(NamedTuple):
    """Status 0: the connection was closed without one."""

    status: int
    head: bytes
    body: bytes


def sent(server: Server, *pieces: bytes, patience_s: float = 10) -> Answer:
    """The answer to these bytes. Fails where neither an answer nor an end comes in time."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=patience_s) as connection:
        with suppress(ConnectionError):  # it may be closed on us before we are through
            for piece in pieces:
                connection.sendall(piece)
        received = b"".join(_until_whole(connection))
    head, _, body = received.partition(b"\r\n\r\n")
    return Answer(int(head.split(maxsplit=2)[1]) if head else 0, head, body)


def _until_whole(connection: socket.socket) -> Iterable[bytes]:
    received = b""
    with suppress(ConnectionError):
        while piece := connection.recv(65_536):
            received += piece
            yield piece
            head, end, body = received.partition(b"\r\n\r\n")
            length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if end and length and len(body) >= int(length[0].partition(b":")[2]):
                return


@contextmanager
def begun(server: Server, *pieces: bytes) -> Iterator[None]:
    """A request that is not brought to its end, while the block runs."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        for piece in pieces:
            connection.sendall(piece)
        yield
