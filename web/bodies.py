"""Request bodies, read whole and never beyond their limit, nor waited for beyond theirs. It knows neither JSON nor a protocol.

What has come of all bodies that are not whole yet is bounded together: whoever sends slowly, from however many
connections, holds no more than that.
"""

import asyncio

from starlette.types import Receive, Scope

BODY_LIMIT = 4 * 1024 * 1024  # bytes
SILENT_S = 30.0  # so long may a client send nothing, and then it is given up
HELD_LIMIT = 96 * 1024 * 1024  # bytes of bodies that are not whole yet: the largest ever taken, and some beside it


class TooLarge(Exception):
    """A body over `limit` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit


class TooSlow(Exception):
    """Its client sent nothing for too long, or less than others while there was no room for all."""


class CutOff(Exception):
    """Its client was gone before the end of the body: nobody is there to be told."""


class Unfinished:
    """The bodies that are not whole yet, each by its patience; those that were heard of longest ago come first."""

    def __init__(self, limit: int) -> None:
        self._limit, self._held = limit, 0
        self._sizes: dict[asyncio.Timeout, int] = {}

    def heard(self, body: asyncio.Timeout, size: int) -> None:
        """So many bytes of it have come by now. Where all are too many, the most silent ones are given up at once."""
        now = asyncio.get_running_loop().time()
        body.reschedule(now + SILENT_S)
        self.forget(body)
        self._sizes[body] = size
        self._held += size
        while self._held > self._limit:
            silent = next(iter(self._sizes))
            self.forget(silent)
            silent.reschedule(now)

    def forget(self, body: asyncio.Timeout) -> None:
        """It is whole, or not waited for any more."""
        self._held -= self._sizes.pop(body, 0)


_unfinished = Unfinished(HELD_LIMIT)


async def whole(scope: Scope, receive: Receive, most: int = BODY_LIMIT) -> bytes:
    """A request's body. Raises TooLarge as soon as it is, and before anything is read where that is announced; TooSlow; CutOff."""
    if _announced(scope) > most:
        raise TooLarge(most)
    try:
        async with asyncio.timeout(SILENT_S) as patience:
            try:
                return await _read(receive, most, patience)
            finally:
                _unfinished.forget(patience)
    except TimeoutError:
        raise TooSlow from None


async def _read(receive: Receive, most: int, patience: asyncio.Timeout) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CutOff
        body += message.get("body", b"")
        if len(body) > most:
            raise TooLarge(most)
        if not message.get("more_body", False):
            return bytes(body)
        _unfinished.heard(patience, len(body))


def _announced(scope: Scope) -> int:
    """Its Content-Length, which the parser has looked at; 0 where it comes in pieces."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), 0)
