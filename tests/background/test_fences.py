"""Fences: a lease says who works, the attempt number keeps out who worked before, and run time is the time under a lease."""

from typing import Any

import pytest

from background import queue
from background.database import Database
from background.errors import LeaseLost
from background.limits import SECOND, Limits
from tests.background.factories import claimed
from tests.background.runs import claim, put, states
from tests.background.story import story, value
from tests.support.clock import Clock

LEASE_S = Limits().lease // SECOND


@story
async def test_a_lease_that_has_run_out_is_found_and_one_that_is_renewed_is_not(db: Database, clock: Clock) -> None:
    held = await claimed(db, "held", "alive")
    lost = await claimed(db, "lost", "dead")
    clock.advance(LEASE_S - 1)
    assert await db.write(queue.renew, [(held.id, 1)]) == {(held.id, 1)}
    clock.advance(1)
    assert await db.read(queue.expired) == []
    clock.advance(0.001)
    assert [row["id"] for row in await db.read(queue.expired)] == [lost.id]


@story
async def test_a_step_forward_renews_the_lease_too(db: Database, clock: Clock) -> None:
    run = await claimed(db)
    clock.advance(LEASE_S)
    await db.write(queue.progress, run)
    clock.advance(LEASE_S)
    assert await db.read(queue.expired) == []


@story
async def test_only_what_is_still_held_is_renewed(db: Database) -> None:
    """A lease that has run out is good again while nobody has taken the run over."""
    ended, passed_on, held = [await claimed(db, key) for key in ("ended", "passed on", "held")]
    await db.write(queue.finish, ended)
    await db.write(queue.release, passed_on)
    (taken,) = await claim(db, worker="another")
    asked = [(run.id, run.attempt) for run in (ended, passed_on, held)]
    assert await db.write(queue.renew, asked) == {(held.id, held.attempt)}
    assert await db.write(queue.renew, [(taken.id, taken.attempt)]) == {(taken.id, 2)}


@story
async def test_what_was_given_back_and_has_waited_since_is_found_and_what_never_began_is_not(
    db: Database, clock: Clock
) -> None:
    run = await claimed(db, "given back")
    await put(db, "never begun")
    await db.write(queue.release, run, counts=False)
    clock.advance(60)
    found = await db.read(queue.given_back, "report", clock() - 59 * SECOND)
    assert [row["key"] for row in found] == ["given back"]
    assert await db.read(queue.given_back, "report", clock() - 60 * SECOND) == []
    assert await db.read(queue.given_back, "turn", clock()) == []


@story
async def test_whoever_holds_an_older_attempt_can_write_nothing(db: Database) -> None:
    """S60: the late words of an attempt that is over."""
    old = await claimed(db)
    await db.write(queue.release, old)
    (new,) = await claim(db)
    assert new.attempt == old.attempt + 1
    for write in (queue.fence, queue.progress, queue.tries):
        with pytest.raises(LeaseLost):
            await db.write(write, old)
    assert not await db.write(queue.finish, old)
    assert not await db.write(queue.release, old)
    await db.write(queue.fence, new)
    assert await db.write(queue.finish, new)


@story
async def test_an_ended_run_is_over_for_whoever_held_it(db: Database) -> None:
    run = await claimed(db)
    assert await db.write(queue.withdraw, run.id, "canceled")
    for write in (queue.fence, queue.progress):
        with pytest.raises(LeaseLost):
            await db.write(write, run)
    assert not await db.write(queue.finish, run)
    assert not await db.write(queue.withdraw, run.id, "failed")
    assert await states(db) == {"k": "canceled"}


@story
async def test_an_end_has_one_first(db: Database) -> None:
    run = await claimed(db)
    assert [await db.write(queue.finish, run) for _ in range(3)] == [True, False, False]


@story
async def test_tries_count_since_the_last_step_forward_and_attempts_count_all(db: Database) -> None:
    run = await claimed(db)
    await db.write(queue.release, run)
    (run,) = await claim(db)
    assert (run.attempt, run.tries) == (2, 2)
    await db.write(queue.progress, run)
    assert await db.write(queue.tries, run) == 1
    await db.write(queue.release, run)
    (run,) = await claim(db)
    assert (run.attempt, run.tries) == (3, 2)


@story
async def test_a_clean_hand_back_is_an_attempt_and_no_try(db: Database) -> None:
    run = await claimed(db)
    for attempt in range(2, 6):
        await db.write(queue.release, run, counts=False)
        (run,) = await claim(db)
        assert (run.attempt, run.tries) == (attempt, 1)


@story
async def test_why_a_run_was_given_back_stays_readable(db: Database) -> None:
    run = await claimed(db)
    await db.write(queue.release, run, error="the index failed")
    (run,) = await claim(db)
    await db.write(queue.release, run, counts=False)
    assert await value(db, "select unsealed('runs.last_error', key, last_error) from runs") == "the index failed"


# -- run time


@story
async def test_run_time_is_the_time_under_a_live_lease(db: Database, clock: Clock) -> None:
    """Not the time in the queue, before or between (S53), nor what lies behind a lease that has run out."""
    await put(db, "k")
    clock.advance(500)
    (run,) = await claim(db)
    clock.advance(10)
    await db.write(queue.renew, [(run.id, run.attempt)])
    clock.advance(5)
    await db.write(queue.progress, run)
    clock.advance(2)
    await db.write(queue.release, run)
    clock.advance(500)
    (run,) = await claim(db)
    assert run.spent == 17 * SECOND
    clock.advance(500)
    await db.write(queue.release, run, error="its worker stopped")
    (run,) = await claim(db)
    assert run.spent == (17 + LEASE_S) * SECOND
    clock.advance(3)
    await db.write(queue.finish, run)
    assert await value(db, "select spent from runs") == (20 + LEASE_S) * SECOND


@pytest.mark.parametrize("road", ["renew", "progress", "withdraw"])
@story
async def test_a_process_that_was_stopped_for_hours_has_not_worked_for_hours(
    db: Database, clock: Clock, road: str
) -> None:
    run = await claimed(db)
    clock.advance(7200)
    roads: dict[str, Any] = {"renew": ([(run.id, 1)],), "progress": (run,), "withdraw": (run.id, "failed")}
    await db.write(getattr(queue, road), *roads[road])
    assert await value(db, "select spent from runs") == LEASE_S * SECOND
