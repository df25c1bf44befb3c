"""How a task comes along: begun once, kept step by step, and found by its owner."""

from collections.abc import Callable
from typing import Any

import pytest

from background import checkpoints, earlier, journal, queue, tasks, terminal
from background.database import Database
from background.errors import LeaseLost
from tests.background.factories import (
    OWNER,
    begun,
    ended,
    outcome,
    running,
    settled,
    submitted,
)
from tests.background.story import rows, story
from tests.support.clock import Clock

# -- begun, and kept


@story
async def test_a_turn_begins_once_and_a_later_attempt_goes_on(db: Database, clock: Clock) -> None:
    task = await submitted(db)
    clock.advance(5)
    turn = await begun(db, task)
    assert (turn.task.state, turn.task.started_at) == ("working", clock())
    await db.write(queue.release, turn.run)
    clock.advance(5)
    again = await begun(db, task)
    assert again.task == turn.task
    started = await rows(db, "select name from events where name = 'turn.started'")
    assert len(started) == 1


@story
async def test_what_belongs_to_an_attempt_that_is_over_is_refused(db: Database) -> None:
    turn = await running(db)
    await db.write(queue.release, turn.run)
    await begun(db, turn.task)
    writes: list[Callable[[], Any]] = [
        lambda: db.write(tasks.begin, turn.run),
        lambda: db.write(tasks.checkpoint, turn.run, "model:1", "[]"),
    ]
    for write in writes:
        with pytest.raises(LeaseLost):
            await write()
    assert await db.read(checkpoints.of_task, turn.task.id) == {}


@story
async def test_a_step_is_kept_as_it_was_first(db: Database, clock: Clock) -> None:
    turn = await running(db)
    await db.write(tasks.checkpoint, turn.run, "input", '["hello"]')
    clock.advance(1)
    await db.write(tasks.checkpoint, turn.run, "model:1", "first")
    await db.write(tasks.checkpoint, turn.run, "model:1", "second")
    kept = await db.read(checkpoints.of_task, turn.task.id)
    assert kept == {"input": '["hello"]', "model:1": "first"}
    assert list(kept) == ["input", "model:1"]


@story
async def test_of_a_completed_turn_the_transcript_stays_and_of_another_its_last_step(
    db: Database, clock: Clock
) -> None:
    kept = {}
    for state in ("completed", "failed"):
        turn = await running(db, session_id=state)
        for name in ("input", "model:1", "tool:1:c"):
            clock.advance(1)
            await db.write(tasks.checkpoint, turn.run, name, f"content of {name}")
        await db.write(terminal.settle, turn.run, outcome(state))
        kept[state] = await db.read(checkpoints.of_task, turn.task.id)
    assert kept == {"completed": {"transcript": "[]"}, "failed": {"tool:1:c": "content of tool:1:c"}}


# -- what later turns and others look up


@story
async def test_past_turns_are_the_session_s_own_ended_ones_oldest_first(db: Database, clock: Clock) -> None:
    for text, state in (("one", "completed"), ("two", "failed"), ("three", "canceled")):
        clock.advance(1)
        await settled(db, await running(db, text), state)
    await ended(db, session_id="another")
    now = await running(db, "now")
    past = await db.read(earlier.turns, now.task.session, now.task.id, 10)
    told = [(turn.text, turn.state, turn.transcript) for turn in past]
    assert told == [(None, "completed", "[]"), ("two", "failed", None), ("three", "canceled", None)]
    assert [turn.text for turn in await db.read(earlier.turns, now.task.session, now.task.id, 2)] == [
        "two",
        "three",
    ]


@story
async def test_another_s_task_does_not_exist(db: Database) -> None:
    task = await submitted(db)
    assert await db.read(tasks.find, OWNER, task.id) == task
    assert await db.read(tasks.find, "bob", task.id) is None
    assert await db.read(tasks.find, OWNER, "unknown") is None
    assert await db.read(journal.view, "bob", task.id) is None


@story
async def test_the_turn_at_work_in_a_session_is_known(db: Database) -> None:
    turn = await running(db)
    await submitted(db)
    assert await db.read(tasks.running, turn.task.session) == turn.task
    await settled(db, turn)
    assert await db.read(tasks.running, turn.task.session) is None
