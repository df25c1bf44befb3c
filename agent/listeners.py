"""Telling listeners, which plugins have added, what has happened: after the commit, in order, from where they had heard.

An event is told until the listener has taken it, so that none is missed and one may come twice; meanwhile later ones
wait. What a listener raises goes to the log. Which process tells it, and how far it has heard, is in the rows.
"""

import asyncio
import json
import logging
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agent.handlers import Handler
from agent.on_behalf import on_behalf_of
from background import events, listeners
from background.database import Database
from background.errors import StorageUnavailable
from background.limits import SECOND
from background.listeners import Held
from background.worker import backoff

log = logging.getLogger(__name__)

NAMES = ("background.queued", "background.started", "background.completed", "turn.started", "turn.finished")
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Event:
    """What has happened. `id` is its number: the same where it is told again. `at` is in microseconds, UTC.

    `data` is what `GET /api/events` has: of a job the JOB without prompt and report, of a turn its session and task.
    """

    id: int
    name: str
    owner: str
    at: int
    data: dict[str, Any]


@dataclass(frozen=True)
class Listener:
    """What hears events of these names. Its name is the plugin's and its own, and keeps its place over restarts."""

    name: str
    handler: Handler
    events: frozenset[str]


class Lost(Exception):
    """Another process tells this listener by now."""


class Telling:
    """Tells one listener, for as long as it runs."""

    def __init__(self, db: Database, listener: Listener) -> None:
        self._db = db
        self._listener = listener
        self._holder = secrets.token_hex(6)
        self._tries = 0

    async def forever(self) -> None:
        """Until it is canceled; then another process may go on at once."""
        with self._db.bell.listen("events") as ear:
            try:
                while True:
                    await self._all()
                    if self._tries:
                        await asyncio.sleep(backoff(self._tries))  # no new event shortens that
                    else:
                        await ear.wait(self._lease_s)
            finally:
                with suppress(StorageUnavailable):
                    await self._db.write(listeners.let_go, self._listener.name, self._holder)

    @property
    def _lease_s(self) -> float:
        return self._db.limits.lease / SECOND / 3

    async def _all(self) -> None:
        """All that there is, page by page; whatever goes wrong is over with this round."""
        try:
            while await self._page():
                pass
        except Lost:
            log.info("listener %s is told by another process", self._listener.name)
        except StorageUnavailable as error:
            self._tries += 1
            log.warning("listener %s waits for the storage: %s", self._listener.name, error)
        except Exception:
            self._tries += 1
            error_id = secrets.token_hex(4)
            log.exception("listener %s failed, error %s; it is told again", self._listener.name, error_id)

    async def _page(self) -> bool:
        """Whether there may be more."""
        who = (self._listener.name, self._holder)
        if not await self._db.read(listeners.is_due, *who):
            return False  # without a write: it would wake the other processes, and theirs us
        held = await self._db.write(listeners.hold, *who)
        if held is None:
            return False
        page = await self._db.read(events.of_all, held.heard)
        for number, row in enumerate(page, 1):
            if row.name in self._listener.events:
                await self._tell(held, Event(row.id, row.name, row.owner, row.created_at, json.loads(row.data)))
            if row.name in self._listener.events or number == len(page):
                held = await self._heard(held, row.id)
        return bool(page)

    async def _heard(self, held: Held, number: int) -> Held:
        moved = await self._db.write(listeners.has_heard, held, number)
        if moved is None:
            raise Lost
        self._tries = 0
        return moved

    async def _tell(self, held: Held, event: Event) -> None:
        """Returns once the listener has taken it; the lease is kept meanwhile. Raises what the listener raises, and `Lost`."""
        call = asyncio.create_task(self._call(event))
        try:
            while not (await asyncio.wait({call}, timeout=self._lease_s))[0]:
                if await self._db.write(listeners.has_heard, held, held.heard) is None:
                    raise Lost
            await call
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    async def _call(self, event: Event) -> None:
        with on_behalf_of(event.owner):
            async with asyncio.timeout(TIMEOUT_S):
                await self._listener.handler.call(event)
