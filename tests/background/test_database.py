"""Transactions: whole functions on the writer, one snapshot on a reader, and a registry that closes and listens well."""

import asyncio
import sqlite3
import threading
from typing import Any

import aiosqlite
import pytest

from background import database
from background.database import Database, Tx
from background.errors import LeaseLost, StorageUnavailable
from background.limits import SECOND
from tests.background.commits import commits, committed, keep, keep_and_raise
from tests.background.story import listened_to, opened, story, until, value
from tests.support.clock import Clock

# -- one transaction


@story
async def test_a_transaction_is_there_for_everybody_once_its_caller_is_answered(db: Database) -> None:
    assert await db.write(keep, "a") == "kept a"
    assert committed(db) == {"a"}


@story
async def test_what_a_transaction_raises_is_raised_to_its_caller_and_nothing_of_it_is_kept(db: Database) -> None:
    with pytest.raises(ZeroDivisionError):
        await db.write(keep_and_raise, "a", ZeroDivisionError())
    assert committed(db) == set()


@story
async def test_a_signal_is_raised_to_its_caller_too_and_undoes_the_transaction(db: Database) -> None:
    with pytest.raises(LeaseLost):
        await db.write(keep_and_raise, "a", LeaseLost())
    assert committed(db) == set()


@story
async def test_a_transaction_has_one_time(db: Database, clock: Clock) -> None:
    def twice(tx: Tx) -> tuple[int, int]:
        before = tx.now
        clock.advance(5)
        return before, tx.now

    before, after = await db.write(twice)
    assert before == after == clock() - 5 * SECOND


@story
async def test_a_reader_cannot_write(db: Database) -> None:
    with pytest.raises(StorageUnavailable, match="readonly"):
        await db.read(keep, "a")
    assert committed(db) == set()


@story
async def test_a_reader_sees_one_moment_however_much_is_written_meanwhile(db: Database) -> None:
    began, written = threading.Event(), threading.Event()

    def count_twice(tx: Tx) -> tuple[int, int]:
        before = tx.value("select count(*) from workers")
        began.set()
        assert written.wait(10)
        return before, tx.value("select count(*) from workers")

    reading = asyncio.create_task(db.read(count_twice))
    await until(began.is_set)
    await db.write(keep, "a")
    written.set()
    assert await reading == (0, 0)
    assert await value(db, "select count(*) from workers") == 1


@pytest.mark.parametrize("road", ["write", "read"])
@story
async def test_stop_iteration_is_an_error_to_its_caller_and_hangs_nobody(db: Database, road: str) -> None:
    """Given to a future, it would end the future's own generator: a bare `next()` hung its caller for ever."""

    def bare_next(tx: Tx) -> int:
        return next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        async with asyncio.timeout(5):
            await getattr(db, road)(bare_next)
    assert await db.write(keep, "after") == "kept after"


# -- opening and closing


@story
async def test_closing_answers_everybody_who_waits(db: Database) -> None:
    """Each was committed, or is told that the registry is closed; nobody hangs, and nobody is told an untruth."""
    waiting = [asyncio.create_task(db.write(keep, f"n{number:03}")) for number in range(200)]
    await asyncio.sleep(0)
    await db.close()
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*waiting, return_exceptions=True)
    kept = {f"n{number:03}" for number, answer in enumerate(answers) if isinstance(answer, str)}
    assert committed(db) == kept
    assert {type(answer) for answer in answers} <= {str, StorageUnavailable}


@story
async def test_a_closed_registry_says_so(db: Database) -> None:
    await db.close()
    for road in (db.write, db.read):
        with pytest.raises(StorageUnavailable, match="closed"):
            await road(Tx.value, "select 1")


@story
async def test_another_process_s_commit_is_heard_of(db: Database, clock: Clock) -> None:
    """By looking ten times a second; no commit of one's own makes such a sound."""
    assert database.FOREIGN_POLL_S == 0.1
    async with opened(db.path, clock) as other:
        with db.bell.listen("whatever") as ear:
            await db.write(keep, "own")
            assert not await ear.wait(0.3)
            await other.write(keep, "foreign")
            assert await ear.wait(5)


@story
async def test_others_are_still_heard_of_after_the_file_could_not_be_read_for_a_while(
    db: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def fails_twice(connection: sqlite3.Connection) -> int:
        nonlocal looks
        looks += 1
        if looks < 3:
            raise sqlite3.OperationalError("disk I/O error")
        return connection.execute("pragma data_version").fetchone()[0]

    monkeypatch.setattr(database, "_data_version", fails_twice)
    await until(lambda: looks > 3)
    async with opened(db.path, clock) as other:
        with db.bell.listen("whatever") as ear:
            await other.write(keep, "foreign")
            assert await ear.wait(5)


# -- what it relies on


@story
async def test_the_ground_that_it_stands_on_in_aiosqlite_is_still_there(db: Database) -> None:
    """`_execute` runs a function on the connection's thread; `_tx` takes (None, function) for what answers nobody."""
    connection = aiosqlite.Connection(lambda: sqlite3.connect(db.path), iter_chunk_size=64)
    await connection
    try:
        on_its_thread = await connection._execute(threading.get_ident)
        assert on_its_thread != threading.get_ident()
        ran: list[int] = []
        connection._tx.put_nowait((None, lambda: ran.append(threading.get_ident())))
        await connection._execute(str)
        assert ran == [on_its_thread]
        assert isinstance(connection._conn, sqlite3.Connection)
    finally:
        await connection.close()


@story
async def test_each_connection_is_set_up_to_lose_nothing(db: Database) -> None:
    def settings(tx: Tx) -> dict[str, Any]:
        names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout", "query_only")
        return {name: tx.value(f"pragma {name}") for name in names}

    full = 2
    common = {"journal_mode": "wal", "synchronous": full, "foreign_keys": 1, "busy_timeout": 5000}
    assert await db.write(settings) == {**common, "query_only": 0}
    for _ in range(database.READERS):
        assert await db.read(settings) == {**common, "query_only": 1}


@story
async def test_no_statement_leaves_a_cursor_open(db: Database) -> None:
    """An unread `returning` would make the savepoint's release and the commit fail."""

    def unread(tx: Tx) -> None:
        keep(tx, "a")
        keep(tx, "b")
        with listened_to(tx) as heard:
            assert tx.value("update workers set pid = 2 returning id") in ("a", "b")
        assert len(heard) == 1

    _, answers = await commits(db, lambda: db.write(unread), lambda: db.write(keep, "c"))
    assert answers == [None, "kept c"]
    assert committed(db) == {"a", "b", "c"}
