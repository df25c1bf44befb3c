"""Runs as a test sees them: put into the queue, claimed, and looked at in order."""

from typing import Any

from background import queue
from background.database import Database
from background.queue import Run
from tests.background.story import rows, value


async def put(db: Database, *keys: str, kind: str = "report", **more: Any) -> list[bool]:
    """Runs of these keys, each in a transaction of its own."""
    return [await db.write(queue.enqueue, kind, key, **more) for key in keys]


async def claim(db: Database, room: int = 10, kind: str = "report", worker: str = "w") -> list[Run]:
    return await db.write(queue.claim, worker, kind, room)


async def states(db: Database) -> dict[str, str]:
    return {row["key"]: row["state"] for row in await rows(db, "select key, state from runs order by id")}


async def keys_of(db: Database, runs: list[Run]) -> list[str]:
    return [await value(db, "select key from runs where id = :id", id=run.id) for run in runs]
