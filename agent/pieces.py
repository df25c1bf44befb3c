"""Pieces of an answer that a model is still giving, committed for whoever reads a stream of the task.

They come seldom enough to cost next to nothing and never hold the model up: what is said meanwhile waits for the next
one. An answer that is over before the first has none. It knows no row; committing is the turn's affair.
"""

import asyncio
from collections.abc import Awaitable, Callable

from background.errors import LeaseLost, StorageUnavailable
from background.text import clean

PAUSE_S = 0.25  # between two, at first
OF_ITS_TIME = 1 / 16  # an answer that takes long has pieces more seldom: their number grows far slower than it does
LEAST_CHARS = 40

Commit = Callable[[str, bool], Awaitable[None]]


def pause_s(taken_s: float) -> float:
    """How long to the next piece of an answer that has taken so long."""
    return max(PAUSE_S, taken_s * OF_ITS_TIME)


class Pieces:
    """The answer of a turn as it comes. `commit` takes a piece, and whether the answer begins anew with it."""

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._waits = ""
        self._anew = True
        self._began = 0.0
        self._telling: asyncio.Task[None] | None = None

    def say(self, text: str) -> None:
        """A bit of the answer has come."""
        self._waits += text
        if self._telling is None:
            self._began = asyncio.get_running_loop().time()
            self._telling = asyncio.create_task(self._tell())

    async def end(self) -> None:
        """The answer is whole: what has not been told of it is told with it, and the next begins anew."""
        telling, self._telling = self._telling, None
        self._waits, self._anew = "", True
        if telling is not None:
            telling.cancel()
            (came,) = await asyncio.gather(telling, return_exceptions=True)
            if isinstance(came, Exception):
                raise came

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(pause_s(asyncio.get_running_loop().time() - self._began))
            if len(self._waits) >= LEAST_CHARS:
                await self._next()

    async def _next(self) -> None:
        piece, anew = self._waits, self._anew
        self._waits, self._anew = "", False
        try:
            await self._commit(clean(piece), anew)
        except StorageUnavailable:  # the next one has it
            self._waits, self._anew = piece + self._waits, anew
        except LeaseLost:
            """The turn finds that out at its next step."""
