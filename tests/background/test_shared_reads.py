"""Shared reads: those who ask at the same moment share a reader and a snapshot, and each has an answer of its own."""

import asyncio
import sqlite3
import threading
from typing import Any

import pytest

from background import database
from background.database import Database, Tx
from background.errors import StorageUnavailable
from tests.background.story import story, until
from tests.background.test_shared_commits import keep


def count(tx: Tx) -> int:
    return tx.value("select count(*) from workers")


def snapshot(tx: Tx) -> tuple[int, int]:
    """Which reader it is, and how often that has begun a transaction."""
    heard = _heard[id(tx._connection)]
    return id(tx._connection), sum(sql == "begin" for sql in heard)


_heard: dict[int, list[str]] = {}


async def overheard(db: Database) -> None:
    """From now on it is written down what the readers do."""
    _heard.clear()
    for reader in db._readers:
        _heard[id(reader._conn)] = heard = []
        reader._conn.set_trace_callback(heard.append)


@story
async def test_those_who_ask_at_the_same_moment_share_a_snapshot(db: Database) -> None:
    await overheard(db)
    answers = await asyncio.gather(*(db.read(snapshot) for _ in range(50)))
    assert len(set(answers)) == 1
    assert sum(sql == "begin" for heard in _heard.values() for sql in heard) == 1


@story
async def test_many_are_shared_out_among_the_readers(db: Database) -> None:
    """So that nobody waits for all the others, and one reader's thread does not do everything."""
    await overheard(db)
    answers = await asyncio.gather(*(db.read(snapshot) for _ in range(3 * database.GROUP)))
    assert [answers.count(answer) for answer in set(answers)] == [database.GROUP] * 3
    assert len({reader for reader, _ in answers}) == database.READERS


@story
async def test_each_gets_its_own_answer(db: Database) -> None:
    asked = [db.read(Tx.value, "select :number", number=number) for number in range(200)]
    assert await asyncio.gather(*asked) == list(range(200))


@story
async def test_who_asks_after_a_commit_sees_it_whoever_asked_before(db: Database) -> None:
    async def written_and_seen(number: int) -> int:
        await db.write(keep, f"n{number}")
        return await db.read(count)

    before = [asyncio.create_task(db.read(count)) for _ in range(10)]
    seen = await asyncio.gather(*(written_and_seen(number) for number in range(10)))
    assert max(seen) == 10 and min(seen) >= 1
    assert {await asked for asked in before} <= set(range(11))


@story
async def test_one_s_error_is_its_own(db: Database) -> None:
    def wrong(tx: Tx, error: BaseException) -> None:
        raise error

    def missing(tx: Tx) -> None:
        tx.q("select * from nowhere")

    asked: list[Any] = [db.read(wrong, ZeroDivisionError()), db.read(count), db.read(missing), db.read(keep, "a")]
    asked += [db.read(Tx.x, "select :no"), db.read(count)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(answer) for answer in answers] == [
        ZeroDivisionError,
        int,
        StorageUnavailable,
        StorageUnavailable,
        sqlite3.ProgrammingError,
        int,
    ]
    assert "nowhere" in str(answers[2]) and "readonly" in str(answers[3])
    assert isinstance(answers[2].__cause__, sqlite3.OperationalError)


@story
async def test_who_takes_everybody_s_snapshot_along_fails_alone(db: Database) -> None:
    """What the others read behind it would otherwise be of many moments."""
    moments: list[int] = []

    def loses(tx: Tx) -> None:
        tx.x("rollback")
        raise sqlite3.OperationalError("disk I/O error")

    def look(tx: Tx) -> bool:
        moments.append(1)
        return tx._connection.in_transaction

    answers = await asyncio.gather(db.read(look), db.read(loses), db.read(look), return_exceptions=True)
    assert (answers[0], answers[2]) == (True, True)
    assert isinstance(answers[1], StorageUnavailable) and "I/O" in str(answers[1])
    assert len(moments) == 4  # each once more, by itself


@story
async def test_a_reader_that_cannot_begin_says_so_to_each_who_asked_it_and_hangs_nobody(db: Database) -> None:
    for reader in db._readers:
        reader._conn.execute("begin")
    answers = await asyncio.gather(*(db.read(count) for _ in range(5)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {StorageUnavailable}
    for reader in db._readers:
        reader._conn.execute("rollback")
    assert await asyncio.gather(*(db.read(count) for _ in range(5))) == [0] * 5


@story
async def test_a_caller_who_went_away_is_nobody_s_trouble(db: Database) -> None:
    going, staying = (asyncio.create_task(db.read(count)) for _ in range(2))
    await asyncio.sleep(0)  # both have asked
    going.cancel()
    assert await staying == 0
    with pytest.raises(asyncio.CancelledError):
        await going
    assert await db.read(count) == 0


@story
async def test_closing_answers_those_who_have_asked_and_refuses_the_rest(db: Database) -> None:
    """Also while a reader is at work: nobody hangs."""
    began, go_on = threading.Event(), threading.Event()

    def slow(tx: Tx) -> str:
        began.set()
        assert go_on.wait(10)
        return "slow"

    reading = asyncio.create_task(db.read(slow))
    await until(began.is_set)
    asked = [asyncio.create_task(db.read(count)) for _ in range(200)]
    await asyncio.sleep(0)  # they have asked, and no reader has heard of it
    closing = asyncio.create_task(db.close())
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(5):
        await closing
        assert await reading == "slow"
        assert await asyncio.gather(*asked) == [0] * 200
    with pytest.raises(StorageUnavailable, match="closed"):
        await db.read(count)
