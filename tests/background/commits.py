"""Small transactions, and what a stranger and the registry's own connection see of their commits."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

from background.database import Database, Tx


def keep(tx: Tx, name: str) -> str:
    """A row, so small that nobody minds it."""
    tx.x("insert into workers values (:name, 'here', 1, :now, :now, :now)", name=name, now=tx.now)
    return f"kept {name}"


def keep_and_raise(tx: Tx, name: str, error: BaseException) -> None:
    keep(tx, name)
    raise error


def committed(db: Database) -> set[str]:
    """What a stranger with a connection of his own can read at this moment."""
    with closing(sqlite3.connect(db.path)) as stranger:
        return {name for (name,) in stranger.execute("select id from workers")}


async def commits(db: Database, *writes: Callable[[], Any]) -> tuple[int, list[Any]]:
    """What these writes, asked for at one moment, brought or raised; and how many commits they took."""
    heard: list[str] = []
    await db.write(lambda tx: tx._connection.set_trace_callback(heard.append))
    heard.clear()
    answers = await asyncio.gather(*(write() for write in writes), return_exceptions=True)
    taken = [sql for sql in heard if sql.lower() == "commit"]
    await db.write(lambda tx: tx._connection.set_trace_callback(None))
    return len(taken), answers
