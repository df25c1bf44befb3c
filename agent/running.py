"""The Outrider of this process, for code that may be on any event loop or thread: what it asks is done on Outrider's own.

Stores answer on the event loop that they were opened on and on no other. Whoever waits elsewhere when Outrider stops is
told so. It knows no plugin and decides nothing.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from agent.subagents import Registry
from agent.works import Kind, Loose
from background.database import Database
from background.errors import Fault
from knowledge.backend import Backend, Hit

T = TypeVar("T")
STOPPED = "Outrider has stopped in this process; whether this was done is not known."


class Running:
    """Its stores, types of subagents and kinds of work; `level` is the answer level of what is sent out here. Made on its
    event loop.
    """

    def __init__(
        self,
        db: Database,
        knowledge: Backend,
        registry: Registry,
        level: str = "full",
        works: Mapping[str, Kind] | None = None,
        loose: Loose | None = None,
    ) -> None:
        self.registry = registry
        self.works = works or {}
        self.loose = loose or Loose()
        self.level = level
        self._db = db
        self._knowledge = knowledge
        self._loop = asyncio.get_running_loop()
        self._door = threading.Lock()  # nobody comes in while it is being closed
        self._inside: set[Future[Any]] | None = set()  # what was handed over from elsewhere; None once it is closed

    async def write(self, function: Callable[..., T], *given: Any) -> T:
        """`Database.write`. Raises an `unavailable` fault where Outrider stops meanwhile, as the others do."""
        return await self._at_home(lambda: self._db.write(function, *given))

    async def read(self, function: Callable[..., T], *given: Any) -> T:
        """`Database.read`."""
        return await self._at_home(lambda: self._db.read(function, *given))

    async def search(self, query: str, owner: str, limit: int) -> list[Hit]:
        """`Backend.search`."""
        return await self._at_home(lambda: self._knowledge.search(query, owner, limit=limit))

    def leave(self) -> None:
        """It stops: whoever waits on another event loop is told, and nobody is let in any more."""
        with self._door:
            inside, self._inside = self._inside or set(), None
        for handed in inside:
            handed.cancel()
        self.loose.close()

    async def _at_home(self, ask: Callable[[], Awaitable[T]]) -> T:
        if asyncio.get_running_loop() is self._loop:
            return await ask()
        handed = self._hand_over(ask)
        try:
            return await asyncio.wrap_future(handed)
        except asyncio.CancelledError:
            waiter = asyncio.current_task()
            if waiter and waiter.cancelling():
                raise
            raise Fault("unavailable", STOPPED) from None

    def _hand_over(self, ask: Callable[[], Awaitable[T]]) -> Future[T]:
        async def asked() -> T:
            return await ask()

        with self._door:
            if self._inside is None:
                raise Fault("unavailable", STOPPED)
            handed = asyncio.run_coroutine_threadsafe(asked(), self._loop)
            self._inside.add(handed)
        handed.add_done_callback(self._let_out)
        return handed

    def _let_out(self, handed: Future[Any]) -> None:
        with self._door:
            if self._inside is not None:
                self._inside.discard(handed)
