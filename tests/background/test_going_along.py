"""Going along: a function that waits for a commit of others to give it something to do, and is part of that commit."""

import asyncio
import sqlite3
from typing import Any

import pytest

from background.database import Database, Tx
from background.signals import Ear
from tests.background.story import story, until
from tests.background.test_shared_commits import commits, committed, keep

TOPIC = "bread"
LONG_S = 60.0


def bake(tx: Tx, name: str) -> str:
    """A row, and word of it to who goes along."""
    tx.ring(TOPIC)
    return keep(tx, name)


def seen(tx: Tx) -> list[str]:
    return [row["id"] for row in tx.q("select id from workers order by id")]


def eat(tx: Tx) -> list[str]:
    """What was baked, and a row of its own."""
    there = seen(tx)
    keep(tx, "eaten")
    return there


def going(db: Database, ear: Ear, function: Any = eat, patience_s: float = LONG_S, **more: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(db.write_along(more.pop("topic", TOPIC), ear, patience_s, function, **more))


async def armed(db: Database, count: int = 1) -> None:
    await until(lambda: len(db._along) == count)


@story
async def test_who_goes_along_sees_what_was_written_and_shares_its_commit(db: Database) -> None:
    with db.bell.listen(TOPIC) as ear:
        meal = going(db, ear)
        await armed(db)
        count, _ = await commits(db, lambda: db.write(bake, "a"), lambda: db.write(bake, "b"))
        assert await meal == ["a", "b"] and committed(db) == {"a", "b", "eaten"}
        assert count == 1


@story
async def test_a_commit_that_rings_nothing_of_his_leaves_him_waiting(db: Database) -> None:
    with db.bell.listen(TOPIC) as ear:
        meal = going(db, ear)
        await armed(db)
        await db.write(keep, "a")
        assert committed(db) == {"a"} and not meal.done()
        await db.write(bake, "b")
        assert await meal == ["a", "b"]


@story
async def test_when_his_patience_is_over_he_goes_alone(db: Database) -> None:
    with db.bell.listen(TOPIC) as ear:
        assert await going(db, ear, patience_s=0.01) == []
        assert committed(db) == {"eaten"}


@story
async def test_a_ring_from_elsewhere_sends_him_alone(db: Database) -> None:
    """As another process's commit does, of which nobody knows what it was."""
    with db.bell.listen(TOPIC) as ear:
        meal = going(db, ear)
        await armed(db)
        db.bell.ring_all()
        assert await meal == []


@story
async def test_what_was_rung_while_nobody_waited_is_not_missed(db: Database) -> None:
    with db.bell.listen(TOPIC) as ear:
        await db.write(bake, "a")
        assert await going(db, ear) == ["a"]


@story
async def test_a_ring_that_he_has_answered_is_not_heard_again(db: Database) -> None:
    with db.bell.listen(TOPIC) as ear:
        meal = going(db, ear)
        await armed(db)
        await db.write(bake, "a")
        await meal
        assert not await ear.wait(0)


@pytest.mark.parametrize("first", ["bread", "wine"])
@story
async def test_who_is_to_be_last_is_last_whatever_rings_first(db: Database, first: str) -> None:
    """And sees what those before him wrote, who rang for him again."""

    def drink(tx: Tx) -> list[str]:
        tx.ring(TOPIC)
        keep(tx, "drunk")
        return seen(tx)

    def lay(tx: Tx, topic: str) -> None:
        tx.ring(topic)

    with db.bell.listen(TOPIC) as one, db.bell.listen("wine") as two:
        meal, glass = going(db, one, last=True), going(db, two, drink, topic="wine")
        await armed(db, 2)
        order = [first, "wine" if first == TOPIC else TOPIC]
        await asyncio.gather(*(db.write(lay, topic) for topic in order))
        assert await meal == ["drunk"] and await glass == ["drunk"]
        assert not await one.wait(0)


@story
async def test_his_error_is_his_own(db: Database) -> None:
    def choke(tx: Tx) -> None:
        keep(tx, "half")
        raise ZeroDivisionError

    with db.bell.listen(TOPIC) as ear:
        meal = going(db, ear, choke)
        await armed(db)
        assert await db.write(bake, "a") == "kept a"
        with pytest.raises(ZeroDivisionError):
            await meal
        assert committed(db) == {"a"}


@story
async def test_where_he_costs_all_of_them_their_commit_each_has_his_own(db: Database) -> None:
    runs = []

    def spill(tx: Tx) -> None:
        runs.append(seen(tx))
        if len(runs) == 1:
            tx._connection.execute("rollback")  # what a full disk does
            raise sqlite3.OperationalError("database or disk is full")
        keep(tx, "eaten")

    with db.bell.listen(TOPIC) as ear:
        meal = going(db, ear, spill)
        await armed(db)
        answers = await asyncio.gather(db.write(bake, "a"), db.write(bake, "b"))
        await meal
        assert answers == ["kept a", "kept b"] and runs == [["a", "b"], ["a", "b"]]
        assert committed(db) == {"a", "b", "eaten"}


@story
async def test_who_is_canceled_while_he_waits_never_goes(db: Database) -> None:
    with db.bell.listen(TOPIC) as ear:
        meal = going(db, ear)
        await armed(db)
        meal.cancel()
        await asyncio.gather(meal, return_exceptions=True)
        await db.write(bake, "a")
        assert committed(db) == {"a"} and await ear.wait(0)


@story
async def test_nobody_takes_another_s_place(db: Database) -> None:
    """Else the first would never be called, nor told."""
    with db.bell.listen(TOPIC) as ear:
        meal = going(db, ear)
        await armed(db)
        with pytest.raises(AssertionError, match=TOPIC):
            await db.write_along(TOPIC, ear, LONG_S, eat)
        await db.write(bake, "a")
        assert await meal == ["a"]


@story
async def test_a_part_that_stands_apart_is_undone_alone(db: Database) -> None:
    def write(tx: Tx) -> None:
        keep(tx, "a")
        with pytest.raises(ZeroDivisionError), tx.apart():
            keep(tx, "b")
            raise ZeroDivisionError
        with tx.apart():
            keep(tx, "c")

    await db.write(write)
    assert committed(db) == {"a", "c"}
