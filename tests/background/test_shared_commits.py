"""Shared commits: those who wait at the same moment share one, and each has its own end and an answer that is true."""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from background.database import Database, Tx
from background.errors import StorageUnavailable
from tests.background.commits import commits, committed, keep, keep_and_raise
from tests.background.story import story, value

# -- shared commits


@story
async def test_those_who_wait_at_the_same_moment_share_a_commit(db: Database) -> None:
    count, answers = await commits(db, *(lambda name=f"n{n:02}": db.write(keep, name) for n in range(50)))
    assert answers == [f"kept n{n:02}" for n in range(50)]
    assert count < 10
    assert len(committed(db)) == 50


@story
async def test_one_s_error_is_its_own(db: Database) -> None:
    def write(number: int) -> Callable[[], Any]:
        if number % 3:
            return lambda: db.write(keep, f"n{number}")
        return lambda: db.write(keep_and_raise, f"n{number}", ZeroDivisionError())

    _, answers = await commits(db, *map(write, range(12)))
    assert [type(answer).__name__ for answer in answers] == ["ZeroDivisionError", "str", "str"] * 4
    assert committed(db) == {f"n{number}" for number in range(12) if number % 3}


@story
async def test_each_who_shares_a_commit_finds_it_made_when_answered(db: Database) -> None:
    async def look_after(name: str) -> bool:
        await db.write(keep, name)
        return name in committed(db)

    assert all(await asyncio.gather(*(look_after(f"n{number}") for number in range(20))))


@story
async def test_a_false_waits_for_the_commit_too(db: Database) -> None:
    """False says that another was first: that must be true for everybody when it is said."""

    def first(tx: Tx) -> bool:
        return tx.x("insert into workers values ('one', 'here', 1, 1, 1, 1) on conflict do nothing") == 1

    async def attempt() -> tuple[bool, bool]:
        return await db.write(first), "one" in committed(db)

    told = await asyncio.gather(*(attempt() for _ in range(10)))
    assert [won for won, _ in told].count(True) == 1
    assert all(there for _, there in told)


@story
async def test_a_trouble_that_shows_only_at_the_commit_is_the_culprit_s_alone(db: Database) -> None:
    """A deferred constraint fails the whole shared commit: then each runs again by itself."""

    def orphan(tx: Tx) -> None:
        tx.x("pragma defer_foreign_keys = on")
        tx.x("insert into revisions (task_id, revision, state, at) values ('no such task', 1, 'submitted', 1)")

    writes = [lambda: db.write(keep, "a"), lambda: db.write(orphan), lambda: db.write(keep, "b")]
    _, (a, error, b) = await commits(db, *writes)
    assert (a, b) == ("kept a", "kept b")
    assert isinstance(error, sqlite3.IntegrityError)
    assert committed(db) == {"a", "b"}
    assert await value(db, "select count(*) from revisions") == 0


@story
async def test_who_takes_everybody_s_savepoints_along_fails_alone(db: Database) -> None:
    """A full disk can roll the whole transaction back: those before must not be answered as if they were kept."""

    def rolled_back(tx: Tx) -> None:
        keep(tx, "lost")
        tx.x("rollback")
        raise sqlite3.OperationalError("database or disk is full")

    writes = [lambda: db.write(keep, "a"), lambda: db.write(rolled_back), lambda: db.write(keep, "b")]
    _, (a, error, b) = await commits(db, *writes)
    assert (a, b) == ("kept a", "kept b")
    assert isinstance(error, StorageUnavailable)
    assert committed(db) == {"a", "b"}


@story
async def test_who_loses_the_transaction_and_says_nothing_is_told_and_takes_nobody_along(db: Database) -> None:
    """What the others do behind it would otherwise be kept at once, each statement by itself, and then once more."""

    def loses(tx: Tx) -> str:
        keep(tx, "lost")
        tx.x("rollback")
        return "kept"

    writes = [lambda: db.write(keep, "a"), lambda: db.write(loses), lambda: db.write(keep, "b")]
    _, (a, lost, b) = await commits(db, *writes)
    assert (a, b) == ("kept a", "kept b")
    assert isinstance(lost, StorageUnavailable)
    assert committed(db) == {"a", "b"}


# -- what happens after the commit


@story
async def test_who_is_woken_by_a_commit_finds_it_made(db: Database) -> None:
    def keep_and_ring(tx: Tx) -> None:
        keep(tx, "a")
        tx.ring("topic")

    with db.bell.listen("topic") as ear:
        writing = asyncio.create_task(db.write(keep_and_ring))
        assert await ear.wait(5)
        assert committed(db) == {"a"}
        await writing


@story
async def test_in_a_shared_commit_those_ring_who_stand_and_nobody_else(db: Database) -> None:
    def keep_and_ring(tx: Tx, name: str, error: BaseException | None = None) -> None:
        keep(tx, name)
        tx.ring(name)
        if error:
            raise error

    def orphan(tx: Tx) -> None:  # makes all of them run a second time, each alone
        tx.x("pragma defer_foreign_keys = on")
        tx.x("insert into revisions (task_id, revision, state, at) values ('no such task', 1, 'submitted', 1)")
        tx.ring("c")

    writes = [
        lambda: db.write(keep_and_ring, "a"),
        lambda: db.write(keep_and_ring, "b", ZeroDivisionError()),
        lambda: db.write(orphan),
    ]
    with db.bell.listen("a") as a, db.bell.listen("b") as b, db.bell.listen("c") as c:
        await commits(db, *writes)
        assert [await ear.wait(0) for ear in (a, b, c)] == [True, False, False]
    assert committed(db) == {"a"}


@story
async def test_whoever_listens_hears_of_a_commit_and_not_of_what_was_undone(db: Database) -> None:
    def ring(tx: Tx, error: BaseException | None) -> None:
        tx.ring("topic")
        if error:
            raise error

    with db.bell.listen("topic") as ear:
        with pytest.raises(ZeroDivisionError):
            await db.write(ring, ZeroDivisionError())
        assert not await ear.wait(0)
        await db.write(ring, None)
        assert await ear.wait(0)


@story
async def test_a_caller_who_went_away_changes_nothing_about_the_commit_and_who_is_woken_by_it(db: Database) -> None:
    """Seen elsewhere: a canceled caller's row was committed, and what was to follow did not."""

    def keep_and_ring(tx: Tx) -> None:
        keep(tx, "a")
        tx.ring("topic")

    with db.bell.listen("topic") as ear:
        going = asyncio.create_task(db.write(keep_and_ring))
        await asyncio.sleep(0)  # it is asked for, and its caller goes at once
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        assert await ear.wait(5)
    assert committed(db) == {"a"}
