"""Retries: a new attempt under the same id, told once more, with nothing left of the one before."""

import pytest

from background import batches, events, jobs, terminal
from background.database import Database
from background.errors import Fault
from tests.background.factories import (
    OWNER,
    at_work,
    briefing,
    brought_to_end,
    counted,
    ended_job,
    ends,
    fan,
    fresh,
    ids,
    nudges,
    reported,
    running,
    running_job,
    sent_by_api,
    settled,
    taken_up,
    told_by,
)
from tests.background.story import rows, story, value, within

# -- the job


@pytest.mark.parametrize("state", ["completed", "failed", "canceled"])
@story
async def test_a_retry_is_a_new_attempt_under_the_same_id_with_nothing_left_of_the_first(
    db: Database, state: str
) -> None:
    """S06."""
    first = await ended_job(db, state)
    again = await db.write(jobs.retry, OWNER, first.id)
    assert (again.id, again.prompt, again.tools) == (first.id, first.prompt, first.tools)
    assert (again.status, again.attempts, again.task_id, again.delivery) == ("queued", 2, None, "none")
    assert (again.reason, again.detail, again.canceled_by, again.partial) == (None, None, None, False)
    assert (again.excerpt, again.report_chars, again.started_at, again.completed_at) == ("", 0, None, None)
    assert again.batch_id != first.batch_id
    second = await brought_to_end(db, again)
    assert (second.status, second.attempts, second.delivery) == ("completed", 2, "pending")
    assert second.task_id != first.task_id


@story
async def test_each_attempt_is_told_of_by_an_event_of_its_own(db: Database) -> None:
    job = await ended_job(db, "failed")
    await brought_to_end(db, await db.write(jobs.retry, OWNER, job.id))
    found = await db.read(events.after, OWNER, 0)
    assert [event.name for event in found if event.name == "background.completed"] == ["background.completed"] * 2


@story
async def test_a_late_word_of_the_first_attempt_does_not_touch_the_second(db: Database) -> None:
    """S60: canceled, retried, and then the first attempt's worker comes to its end."""
    first = await running_job(db)
    await db.write(terminal.cancel_job, first.job, "user")
    again = await db.write(jobs.retry, OWNER, first.job.id)
    second = await at_work(db, again)
    assert not await settled(db, first.turn, text="late")
    assert await settled(db, second.turn, text="in time")
    assert not await settled(db, first.turn, text="later still")
    job = await fresh(db, again)
    assert (job.status, job.excerpt, job.task_id) == ("completed", "in time", second.turn.task.id)


@pytest.mark.parametrize("status", ["queued", "running"])
@story
async def test_only_what_has_ended_can_be_retried_or_dismissed(db: Database, status: str) -> None:
    (job,) = await sent_by_api(db)
    if status == "running":
        await at_work(db, job)
    for change in (jobs.retry, jobs.dismiss):
        with pytest.raises(Fault) as caught:
            await db.write(change, OWNER, job.id)
        assert (caught.value.kind, caught.value.details) == ("conflict", {"status": status})


@within(max_queued_jobs=1)
async def test_a_retry_counts_against_the_queue_s_limit(db: Database) -> None:
    job = await ended_job(db)
    await sent_by_api(db)
    with pytest.raises(Fault) as caught:
        await db.write(jobs.retry, OWNER, job.id)
    assert caught.value.reason == "QUEUE_LIMIT"
    assert (await fresh(db, job)).status == "completed"


# -- its batch


@story
async def test_a_retry_of_a_held_member_leaves_the_batch_s_join_to_the_others(db: Database) -> None:
    sent = await fan(db, 3)
    await ends(db, sent.outs[0])
    await ends(db, sent.outs[1], "failed")
    again = await db.write(jobs.retry, OWNER, sent.outs[1].job.id)
    assert await nudges(db) == []
    await ends(db, sent.outs[2])
    assert await told_by(db, f"nudge:{sent.batch}:1") == ids(sent.outs[0], sent.outs[2])
    assert await counted(db, sent) == [{"completed": 2, "failed": 1}]
    await brought_to_end(db, again)
    assert [key for key in await nudges(db) if again.id in key] == [f"nudge:{again.id}:2:1"]


@story
async def test_a_retry_of_the_last_one_that_was_waited_for_lets_the_others_be_told(db: Database) -> None:
    sent = await fan(db, 2)
    await ends(db, sent.outs[0])
    await settled(db, sent.outs[1].turn, "failed")
    await db.write(jobs.retry, OWNER, sent.outs[1].job.id)
    assert await told_by(db, f"nudge:{sent.batch}:1") == ids(sent.outs[0])


@story
async def test_a_retry_of_one_that_was_told_is_told_once_more_for_its_own_attempt(db: Database) -> None:
    """S06: a canceled first attempt does not use up the second's notice."""
    job = await ended_job(db, "canceled")
    again = await brought_to_end(db, await db.write(jobs.retry, OWNER, job.id))
    (key,) = await nudges(db)
    turn, told = await briefing(db, key)
    assert told == [again.id]
    await settled(db, turn)
    assert (await fresh(db, again)).delivery == "delivered"
    assert await taken_up(db, await running(db)) == []


@story
async def test_the_first_attempt_s_late_report_does_not_make_the_second_ready(db: Database) -> None:
    (job,) = await sent_by_api(db)
    out = await at_work(db, job)
    await settled(db, out.turn, "failed")
    again = await db.write(jobs.retry, OWNER, job.id)
    await db.write(jobs.report_done, job.id, 1)
    assert await nudges(db) == []
    await settled(db, (await at_work(db, again)).turn)
    assert await taken_up(db, await running(db)) == []
    await reported(db, again)
    assert len(await nudges(db)) == 1


# -- its delivery


@story
async def test_a_retry_while_a_turn_is_telling_is_refused(db: Database) -> None:
    job = await ended_job(db)
    turn = await running(db)
    await taken_up(db, turn)
    with pytest.raises(Fault, match="telling of this job") as caught:
        await db.write(jobs.retry, OWNER, job.id)
    assert caught.value.kind == "conflict"
    await settled(db, turn)
    assert (await db.write(jobs.retry, OWNER, job.id)).attempts == 2


@story
async def test_a_retry_before_it_was_told_leaves_the_first_attempt_untold_and_says_so(db: Database) -> None:
    job = await ended_job(db)
    await db.write(jobs.retry, OWNER, job.id)
    (first,) = await rows(
        db,
        "select state, unsealed('deliveries.last_error', job_id || '/' || attempt, last_error) as why from deliveries",
    )
    assert first == {"state": "undeliverable", "why": "Retried before it was told."}
    assert await taken_up(db, await running(db)) == []


@story
async def test_a_nudge_for_a_first_attempt_that_was_retried_finds_nothing_to_take_up(db: Database) -> None:
    job = await ended_job(db)
    (key,) = await nudges(db)
    await db.write(jobs.retry, OWNER, job.id)
    assert key in await nudges(db)
    assert await db.read(batches.generation_of, job.batch_id, 1) == [job.id]
    assert await taken_up(db, await running(db)) == []
    assert await value(db, "select count(*) from deliveries where state = 'attached'") == 0
