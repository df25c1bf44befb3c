"""Handlers that tell what they do, and workers that have them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from background import queue, tasks, terminal, worker
from background.database import Database, Tx
from background.limits import SECOND
from background.queue import Run
from background.worker import Handler, Worker
from tests.background.factories import outcome
from tests.background.story import comes_true, rows, value
from tests.support.clock import Clock


class Work:
    """A handler that tells what it does, and does what it is told: end at once, or wait at a gate."""

    def __init__(self, db: Database, *, gated: bool = False) -> None:
        self._db = db
        self.gate = asyncio.Event()
        if not gated:
            self.gate.set()
        self.began: list[Run] = []
        self.done: list[Run] = []
        self.stopped: list[Run] = []
        self.at_once = 0
        self.most_at_once = 0

    async def __call__(self, run: Run) -> None:
        self.began.append(run)
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await self.gate.wait()
            await self.end(run)
            self.done.append(run)
        except asyncio.CancelledError:
            self.stopped.append(run)
            raise
        finally:
            self.at_once -= 1

    async def end(self, run: Run) -> None:
        if run.kind in worker.TURNS:
            await self._db.write(_begin_and_settle, run)
        else:
            await self._db.write(queue.finish, run)


def _begin_and_settle(tx: Tx, run: Run) -> None:
    tasks.begin(tx, run)
    terminal.settle(tx, run, outcome())


@asynccontextmanager
async def works(
    db: Database, handler: Callable[[Run], Awaitable[None]], *kinds: str, slots: int = 4, grace_s: float = 5
) -> AsyncIterator[Worker]:
    """A worker that has this handler for these kinds, all in one pool, until the block ends."""
    at_work = Worker(db, {kind: Handler(handler, "all") for kind in kinds or ("report",)}, {"all": slots})
    await at_work.start()
    try:
        yield at_work
    finally:
        await at_work.stop(grace_s)


async def put(db: Database, *keys: str, kind: str = "report", **more: object) -> None:
    for key in keys:
        await db.write(queue.enqueue, kind, key, **more)  # type: ignore[arg-type]


async def states(db: Database) -> list[str]:
    return [row["state"] for row in await rows(db, "select state from runs order by id")]


async def ended(db: Database, count: int = 1) -> None:
    await comes_true(db, "select count(*) >= :count from runs where ended_at is not null", count=count)


async def next_try(db: Database, clock: Clock) -> float:
    """The one run has been given back for later, and now it is later. Returns how much, in seconds."""
    await comes_true(db, "select state = 'queued' and due_at > :now from runs where ended_at is null", now=clock())
    pause = (await value(db, "select due_at from runs where ended_at is null") - clock()) / SECOND
    clock.advance(pause)
    db.bell.ring("runs")
    return pause
