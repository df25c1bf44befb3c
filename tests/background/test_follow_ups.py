"""A step asks a worker once however often it is run, and an end that it asked about is never told as something else."""

import pytest

from background import follow_ups
from background.database import Database
from background.errors import Fault, LeaseLost
from background.job_rows import Job
from tests.background.factories import (
    OWNER,
    Turn,
    at_work,
    briefing,
    brought_to_end,
    fresh,
    nudges,
    reported,
    running,
    sent_by_api,
    settled,
    taken_up,
)
from tests.background.story import rows, story

STEP = "step:t:1:call"


async def known(db: Database) -> Job:
    """A job that has ended and may be told, and of which is kept what its worker did."""
    (job,) = await sent_by_api(db)
    await settled(db, (await at_work(db, job)).turn, transcript="[]")
    return await reported(db, await fresh(db, job))


async def asked(db: Database, turn: Turn, job: Job, step: str = STEP) -> Job:
    return await db.write(follow_ups.ask_in_turn, turn.run, await fresh(db, job), "And?", step)


@story
async def test_a_step_that_runs_twice_asks_once(db: Database) -> None:
    job, turn = await known(db), await running(db)
    first = await asked(db, turn, job)
    again = await asked(db, turn, job)
    assert (first.attempts, again.attempts, again.follow_up) == (2, 2, "And?")
    await brought_to_end(db, again)
    assert (await asked(db, turn, job)).attempts == 2
    assert (await asked(db, turn, job, "step:t:2:call")).attempts == 3


@story
async def test_a_turn_that_is_not_its_worker_s_any_more_asks_nobody(db: Database) -> None:
    job, turn = await known(db), await running(db)
    await settled(db, turn)
    with pytest.raises(LeaseLost):
        await asked(db, turn, job)
    assert (await fresh(db, job)).attempts == 1


@story
async def test_what_a_turn_asked_comes_back_with_its_batch(db: Database) -> None:
    jobs, turn = [await known(db), await known(db)], await running(db)
    asked_jobs = [await asked(db, turn, job, f"step:t:1:{job.id}") for job in jobs]
    assert {job.batch_id for job in asked_jobs} == {turn.task.id}
    before = await nudges(db)
    for job in asked_jobs:
        await brought_to_end(db, job)
    assert await nudges(db) == before, "the turn may ask another"
    await settled(db, turn)
    (key,) = set(await nudges(db)) - set(before)
    _, told = await briefing(db, key)
    assert sorted(told) == sorted(job.id for job in jobs)


@story
async def test_an_end_that_another_turn_tells_just_now_is_not_asked_about(db: Database) -> None:
    job, turn = await known(db), await running(db)
    await taken_up(db, turn)
    with pytest.raises(Fault, match="telling of this job"):
        await db.write(follow_ups.ask, OWNER, job.id, "And?", "full")
    other = await running(db, session_id="another")
    with pytest.raises(Fault, match="Another turn is telling"):
        await asked(db, other, job)


@pytest.mark.parametrize(("ends", "first"), [("completed", "delivered"), ("failed", "undeliverable")])
@story
async def test_the_end_that_a_turn_was_told_and_asked_about_is_told_by_it_or_not_at_all(
    db: Database, ends: str, first: str
) -> None:
    """Where the turn fails, its next turn is told of the answer alone: the job is another attempt by then."""
    job, turn = await known(db), await running(db)
    assert await taken_up(db, turn) == [job.id]
    second = await asked(db, turn, job)
    await settled(db, turn, ends)
    states = await rows(db, "select attempt, state from deliveries order by attempt")
    assert states == [{"attempt": 1, "state": first}]
    await brought_to_end(db, second)
    assert await taken_up(db, await running(db)) == [job.id]


@story
async def test_what_is_asked_is_kept_as_its_level_says(db: Database) -> None:
    job = await known(db)
    with pytest.raises(Fault) as caught:
        await db.write(follow_ups.ask, OWNER, job.id, "Mail ada@example.com?", "metadata")
    assert caught.value.reason == "RESULT_NOT_STORABLE"
    again = await db.write(follow_ups.ask, OWNER, job.id, "Mail ada@example.com?", "redacted")
    assert again.follow_up is not None and "ada@" not in again.follow_up
