"""The queue: a key is once, what is due comes out oldest first, and a lane lets one through at a time."""

from typing import Any

import pytest

from background import queue
from background.database import Database, Tx
from background.limits import SECOND, Limits
from background.queue import Run
from tests.background.runs import claim, keys_of, put, states
from tests.background.story import opened, plans, story, value
from tests.support.clock import Clock

LEASE_S = Limits().lease // SECOND


async def take_next(db: Database, **more: Any) -> list[str]:
    return await keys_of(db, await claim(db, **more))


# -- putting in


@story
async def test_a_key_is_taken_once_for_good(db: Database) -> None:
    assert await put(db, "k", "k") == [True, False]
    (run,) = await claim(db)
    await db.write(queue.finish, run)
    assert await put(db, "k", params={"other": 1}) == [False]
    assert await states(db) == {"k": "done"}


@story
async def test_what_is_put_in_comes_out_as_it_was(db: Database) -> None:
    await put(db, "k", params={"batch": "b", "generation": 2, "text": "é☃"})
    (run,) = await claim(db)
    assert (run.kind, run.params, run.attempt, run.tries, run.spent) == (
        "report",
        {"batch": "b", "generation": 2, "text": "é☃"},
        1,
        1,
        0,
    )


@story
async def test_whoever_waits_for_work_is_woken_by_new_work(db: Database) -> None:
    with db.bell.listen("runs") as ear:
        await put(db, "k")
        assert await ear.wait(0)


# -- taking out


@story
async def test_runs_are_taken_oldest_first_by_their_kind_and_no_more_than_there_is_room_for(db: Database) -> None:
    await put(db, "a", "b", "c")
    await put(db, "x", kind="nudge")
    assert await take_next(db, room=2) == ["a", "b"]
    assert await take_next(db) == ["c"]
    assert await take_next(db) == []
    assert await take_next(db, kind="nudge") == ["x"]


@story
async def test_a_run_is_taken_when_it_is_due_and_not_before(db: Database, clock: Clock) -> None:
    await put(db, "later", due_at=clock() + 60 * SECOND)
    clock.advance(59.999)
    assert await take_next(db) == []
    clock.advance(0.001)
    assert await take_next(db) == ["later"]


@story
async def test_what_has_been_due_longest_is_taken_first(db: Database, clock: Clock) -> None:
    now = clock()
    await put(db, "third", due_at=now + 3)
    await put(db, "first", due_at=now + 1)
    await put(db, "second", due_at=now + 1)
    clock.advance(1)
    assert await take_next(db, room=1) == ["first"]
    assert await take_next(db, room=1) == ["second"]
    assert await take_next(db, room=1) == ["third"]


@story
async def test_when_the_next_run_of_each_kind_is_due_is_known(db: Database, clock: Clock) -> None:
    now = clock()
    await put(db, "a", due_at=now + 7)
    await put(db, "b", due_at=now + 5)
    await put(db, "n", kind="nudge", due_at=now + 9)
    await put(db, "x", kind="index", due_at=now + 1)
    found = await db.read(queue.due, ("report", "nudge", "join"))
    assert found == {"report": now + 5, "nudge": now + 9}
    assert await db.read(queue.due, ()) == {}


@story
async def test_two_workers_in_two_processes_never_take_the_same_run(db: Database, clock: Clock) -> None:
    await put(db, *(f"k{number}" for number in range(30)))
    async with opened(db.path, clock) as other:
        taken: list[tuple[str, int]] = []
        while batch := [
            *(("here", run.id) for run in await claim(db, 2, worker="here")),
            *(("there", run.id) for run in await claim(other, 3, worker="there")),
        ]:
            taken += batch
    assert len(taken) == len({run for _, run in taken}) == 30
    assert {worker for worker, _ in taken} == {"here", "there"}


# -- lanes


@story
async def test_a_lane_lets_one_through_at_a_time_in_the_order_of_arrival(db: Database) -> None:
    await put(db, "a1", "a2", "a3", lane="a")
    await put(db, "b1", lane="b")
    await put(db, "free")
    assert await states(db) == {"a1": "queued", "a2": "waiting", "a3": "waiting", "b1": "queued", "free": "queued"}
    a1, b1, free = await claim(db)
    assert await keys_of(db, [a1, b1, free]) == ["a1", "b1", "free"]
    await db.write(queue.finish, a1)
    (a2,) = await claim(db)
    assert await keys_of(db, [a2]) == ["a2"]
    await db.write(queue.finish, a2, "failed")
    assert await take_next(db) == ["a3"]


@story
async def test_a_later_run_does_not_pass_an_earlier_one_that_is_due_later(db: Database, clock: Clock) -> None:
    await put(db, "first", lane="a", due_at=clock() + 60 * SECOND)
    await put(db, "second", lane="a")
    assert await take_next(db) == []
    clock.advance(60)
    assert await take_next(db) == ["first"]


@story
async def test_a_run_that_is_given_back_keeps_its_place_at_the_head_of_its_lane(db: Database, clock: Clock) -> None:
    await put(db, "first", "second", lane="a")
    (first,) = await claim(db)
    await db.write(queue.release, first, due_at=clock() + SECOND)
    assert await take_next(db) == []
    clock.advance(1)
    assert await take_next(db) == ["first"]


@pytest.mark.parametrize("state", ["waiting", "queued", "running"])
@story
async def test_one_that_is_withdrawn_never_holds_its_lane_up(db: Database, state: str) -> None:
    await put(db, "first", "second", "third", lane="a")
    victim = {"waiting": "second", "queued": "first", "running": "first"}[state]
    if state == "running":
        await claim(db)
    assert (await states(db))[victim] == state
    run_id = await value(db, "select id from runs where key = :key", key=victim)
    assert await db.write(queue.withdraw, run_id, "canceled")
    left = [key for key in ("first", "second", "third") if key != victim]
    for key in left:
        (run,) = await claim(db)
        assert await keys_of(db, [run]) == [key]
        await db.write(queue.finish, run)


@story
async def test_a_lane_that_ran_empty_takes_up_again(db: Database) -> None:
    await put(db, "first", lane="a")
    (first,) = await claim(db)
    await db.write(queue.finish, first)
    await put(db, "second", lane="a")
    assert await take_next(db) == ["second"]


# -- figures, and what a full queue costs


@story
async def test_what_waits_and_works_is_counted_by_kind(db: Database, clock: Clock) -> None:
    start = clock()
    await put(db, "a", "b", "c", lane="one")
    await put(db, "d", "e")
    await put(db, "n", kind="nudge", due_at=start - 5)
    await claim(db, 1)
    clock.advance(60)
    depth = [tuple(row) for row in await db.read(queue.depth)]
    assert depth == [("nudge", 1, 0, 0, 0, start - 5), ("report", 2, 2, 1, 0, start)]


@story
async def test_canceling_by_key_ends_what_has_not_ended(db: Database) -> None:
    await put(db, "a", "b")
    assert await db.write(queue.cancel_key, "a")
    assert not await db.write(queue.cancel_key, "a")
    assert not await db.write(queue.cancel_key, "unknown")
    assert await states(db) == {"a": "canceled", "b": "queued"}


@story
async def test_ten_thousand_that_wait_behind_a_busy_session_cost_the_others_nothing(db: Database) -> None:
    """Each statement of the roads that are taken all the time finds its rows by an index, and none looks through `runs`."""

    def crowd(tx: Tx) -> None:
        queue.enqueue(tx, "turn", "head", lane="busy")
        tx.x(
            "insert into runs (kind, key, lane, state, due_at, created_at) with recursive n (n) as (select 1 union all "
            "select n + 1 from n where n < 10000) select 'turn', 'waiting ' || n, 'busy', 'waiting', :now, :now from n",
            now=tx.now,
        )

    def look(tx: Tx) -> list[str]:
        lines = plans(tx, queue.enqueue, "turn", "another", lane="free")
        lines += plans(tx, queue.enqueue, "turn", "one more", lane="busy")
        lines += plans(tx, queue.due, ("turn", "job"))
        lines += plans(tx, queue.claim, "w", "turn", 16)
        lines += plans(tx, queue.renew, [(1, 1)]) + plans(tx, queue.held, "w") + plans(tx, queue.expired)
        head = Run.of(tx.q("select * from runs where key = 'head'")[0])
        for road in (queue.fence, queue.tries, queue.progress, queue.release):
            lines += plans(tx, road, head)
        return lines + plans(tx, queue.withdraw, head.id, "canceled")

    await db.write(crowd)
    lines = await db.write(look)
    assert any("SEARCH runs USING INDEX runs_due" in line for line in lines), lines
    looked_through = {line for line in lines if line.startswith("SCAN runs")}
    assert looked_through <= {"SCAN runs USING INDEX runs_leased"}  # that index holds what is at work, and no more
    assert await value(db, "select count(*) from runs where lane = 'busy' and state = 'queued'") == 1
