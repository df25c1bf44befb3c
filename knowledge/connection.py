"""The connections to the store's file, each on a thread of its own, and the schema, made by one process.

`apsw.aio` was tried, and is used: one thread a connection, and a function runs on it whole, in one hop
(`async_run`). Canceling the caller stops a query that runs, through SQLite's progress handler, and rolls an open
transaction back. Its thread is no daemon: a connection that is not closed keeps the process alive.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import apsw

from knowledge.backend import StoreFailed

P = ParamSpec("P")
T = TypeVar("T")

VERSION = 2  # of schema.sql, in the file's user_version
SINCE_1 = "create table erased (job_id text primary key, at integer not null) strict, without rowid"
BUSY_MS = 5_000
LOCK_WAIT_S = 30.0
SCHEMA = Path(__file__).with_name("schema.sql")


class Connection:
    """One SQLite connection. `run` is the only way to it; what SQLite raises comes out as StoreFailed."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    @classmethod
    async def open(cls, path: Path) -> "Connection":
        """Opens a file that is there. The busy timeout comes before all else."""
        try:
            raw = await apsw.Connection.as_async(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        except apsw.Error as fault:
            raise StoreFailed(f"the knowledge store cannot be opened: {fault}") from fault
        connection = cls(raw)
        await connection.run(lambda db: db.set_busy_timeout(BUSY_MS))
        return connection

    async def run(self, function: Callable[Concatenate[apsw.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `function(db, …)` on the connection's thread. Canceling stops it, and rolls back."""
        try:
            return await self._raw.async_run(function, self._raw, *args, **kwargs)
        except apsw.Error as fault:
            raise StoreFailed(f"the knowledge store failed: {fault}") from fault

    async def close(self) -> None:
        await self._raw.aclose()


@contextmanager
def transaction(db: apsw.Connection, begin: str = "begin immediate") -> Iterator[None]:
    """All or nothing. For functions that `run` runs.

    Not apsw's own `with db`: that keeps Python's lock while it commits, so the event loop would wait for the disk.
    """
    db.execute(begin)
    try:
        yield
        db.execute("commit")
    except BaseException:
        if db.in_transaction:
            db.execute("rollback")
        raise


@contextmanager
def snapshot(db: apsw.Connection) -> Iterator[None]:
    """One moment's view for all that is read inside."""
    with transaction(db, "begin"):
        yield


def rows(db: apsw.Connection, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
    """All rows of a statement. For functions that `run` runs."""
    return db.execute(sql, parameters).fetchall()


async def writer(path: Path) -> Connection:
    """The connection that writes. Makes file and schema if there are none; refuses a newer version's file."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as fault:
        raise StoreFailed(f"the knowledge store cannot be opened: {fault}") from fault
    connection = await Connection.open(path)
    try:
        await connection.run(_prepare, path)
    except BaseException:
        await connection.close()
        raise
    return connection


async def reader(path: Path) -> Connection:
    """A connection that cannot write."""
    connection = await Connection.open(path)
    await connection.run(lambda db: db.execute("pragma query_only = on; pragma cache_size = -32768").fetchall())
    return connection


def _prepare(db: apsw.Connection, path: Path) -> None:
    """Journal mode and schema, under a lock file: racing openers get "locked" from SQLite in spite of the timeout."""
    with _locked(path.with_name(path.name + ".lock")):
        db.execute("pragma journal_mode = wal").fetchall()
        db.execute("pragma synchronous = full; pragma foreign_keys = on; pragma secure_delete = on").fetchall()
        with transaction(db):
            version = db.pragma("user_version")
            if version > VERSION:
                raise StoreFailed(f"the knowledge store is of version {version}; this program knows {VERSION}")
            if version == 0:
                db.execute(SCHEMA.read_text())
            if version == 1:
                db.execute(SINCE_1)
            db.pragma("user_version", VERSION)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock file; another process's death releases it. Runs on a connection's thread, so it may block."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        give_up = time.monotonic() + LOCK_WAIT_S
        while not _taken(handle):
            if time.monotonic() > give_up:
                raise StoreFailed(f"{path} has been locked for {LOCK_WAIT_S:.0f} s by another process that starts")
            time.sleep(0.02)
        yield
    finally:
        os.close(handle)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
