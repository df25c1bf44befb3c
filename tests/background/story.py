"""How these tests are told: each is a coroutine over a registry of its own, on real files, with time that is handed out.

Also what looks into a registry from outside: all its rows, its query plans, a failure at a chosen statement.
"""

import asyncio
import functools
import inspect
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

from background import messages
from background.database import Database, Row, Tx
from background.limits import Limits
from background.messages import Message
from tests.support.clock import Clock

Told = Callable[..., Coroutine[Any, Any, None]]
PATIENCE_S = 60


def within(**bounds: int) -> Callable[[Told], Callable[..., None]]:
    """Makes a pytest function of a coroutine whose `db` keeps these bounds; its other parameters are fixtures."""

    def decorate(test: Told) -> Callable[..., None]:
        wanted = [name for name in inspect.signature(test).parameters if name != "db"]

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            async def whole() -> None:
                path = fixtures["tmp_path"] / "registry.db"
                async with opened(path, fixtures["clock"], **bounds) as db:
                    await test(db, **{name: fixtures[name] for name in wanted})

            asyncio.run(asyncio.wait_for(whole(), PATIENCE_S))

        names = dict.fromkeys(["tmp_path", "clock", *wanted])
        parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


story = within()


@asynccontextmanager
async def opened(path: Path, clock: Clock, **bounds: Any) -> AsyncIterator[Database]:
    """The registry at `path`, open for a while; a second one on the same file is another process, near enough."""
    db = await Database(path, clock, Limits(**bounds)).open()
    try:
        yield db
    finally:
        await db.close()


async def until(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    """Lets others work until it is so."""
    async with asyncio.timeout(timeout_s):
        while True:
            if condition():
                return
            await asyncio.sleep(0.001)


async def comes_true(db: Database, sql: str, timeout_s: float = 10, **params: Any) -> None:
    """Waits until the first column of the first row is so."""
    async with asyncio.timeout(timeout_s):
        while True:
            if await value(db, sql, **params):
                return
            await asyncio.sleep(0.002)


async def rows(db: Database, sql: str, **params: Any) -> list[dict[str, Any]]:
    """The rows of a query, in which `unsealed('table.column', row, cell)` is a sealed cell's text."""
    return [dict(row) for row in await db.read(_unsealing, sql, **params)]


async def value(db: Database, sql: str, **params: Any) -> Any:
    """The first column of the first row of such a query, or None."""
    found = await rows(db, sql, **params)
    return next(iter(found[0].values())) if found else None


def _unsealing(tx: Tx, sql: str, **params: Any) -> list[Row]:
    def unsealed(column: str, row: str, cell: bytes | None) -> str | None:
        return None if cell is None else tx.unseal(column, row, cell)

    tx._connection.create_function("unsealed", 3, unsealed)
    return tx.q(sql, **params)


def everything(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables as a stranger sees them, who knows only what was committed."""
    with closing(sqlite3.connect(path)) as stranger:
        tables = [name for (name,) in stranger.execute("select name from sqlite_master where type = 'table'")]
        return {table: sorted(stranger.execute(f"select * from {table}"), key=repr) for table in tables}


@contextmanager
def listened_to(tx: Tx) -> Iterator[list[str]]:
    """Every statement that is run on a transaction's connection meanwhile, with its values filled in."""
    heard: list[str] = []
    tx._connection.set_trace_callback(heard.append)
    try:
        yield heard
    finally:
        tx._connection.set_trace_callback(None)


def plans(tx: Tx, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
    """How SQLite goes about each statement of `function(tx, …)`: lines of its query plans."""
    with listened_to(tx) as heard:
        function(tx, *args, **kwargs)
    ours = [sql for sql in heard if not sql.startswith(("explain", "--"))]
    return [row["detail"] for sql in ours for row in tx.q(f"explain query plan {sql}")]


class Unlucky(Tx):
    """A transaction whose statement number `fails_at` does not come to be, as when the disk is full just then."""

    def __init__(self, tx: Tx, fails_at: int = -1) -> None:
        vars(self).update(vars(tx))
        self._connection = _Counting(tx._connection, fails_at)  # type: ignore[assignment]

    @property
    def statements(self) -> int:
        return self._connection.count  # type: ignore[attr-defined]


class _Counting:
    def __init__(self, connection: sqlite3.Connection, fails_at: int) -> None:
        self._connection, self._fails_at, self.count = connection, fails_at, 0

    def execute(self, sql: str, params: dict[str, Any]) -> sqlite3.Cursor:
        if self.count == self._fails_at:
            raise sqlite3.OperationalError("database or disk is full")
        self.count += 1
        return self._connection.execute(sql, params)


def named(found: list[Row], column: str) -> list[Any]:
    return [row[column] for row in found]


async def log_of(db: Database, session: str, limit: int, before: int | None) -> list[Message]:
    """The newest entries of a session's log, however large they are."""
    entries, _ = await db.read(messages.page, session, limit, before, 1 << 30)
    return entries
