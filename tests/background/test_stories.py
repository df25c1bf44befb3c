"""A story costs what its job has, however much else there is; its lines have an order; and it goes with its job."""

import re

from background import job_rows, queue, retention, sessions, stories
from background.database import Database, Tx
from background.job_rows import Job
from background.queue import FAILURES_KEPT
from background.stories import Line
from tests.background.factories import OWNER, SESSION, claimed, ended_job, running, settled, taken_up
from tests.background.story import everything, plans, rows, story

A_WALK = re.compile(r"(?:SCAN|SEARCH) (\w+)$")  # by no index, and by no key


def told(tx: Tx, job: Job) -> stories.Story:
    return stories.of_job(tx, job_rows.by_id(tx, job.id))


async def told_of(db: Database) -> Job:
    """An ended job that a turn has failed to tell."""
    job = await ended_job(db)
    turn = await running(db)
    assert await taken_up(db, turn) == [job.id]
    await settled(db, turn, "failed")
    return job


@story
async def test_no_statement_of_a_story_walks_through_a_table(db: Database) -> None:
    job = await told_of(db)
    steps = await db.read(plans, told, job)
    assert len(steps) > 15 and not [step for step in steps if A_WALK.match(step)]


@story
async def test_what_one_commit_did_is_told_in_the_order_in_which_it_came_about(db: Database) -> None:
    job = await ended_job(db)
    lines = (await db.read(told, job)).lines
    assert [line.what for line in lines] == [
        "spawned",
        "dispatched",
        "task submitted",
        "task working",
        "task completed",
        "report handled",
        "may be told",
        "joined",
        "nudge queued",
    ]
    assert sorted([Line(1, "told"), Line(1, "briefing completed"), Line(0, "joined")], key=lambda line: line.place) == [
        Line(0, "joined"),
        Line(1, "briefing completed"),
        Line(1, "told"),
    ]


@story
async def test_of_one_run_the_latest_failures_are_kept(db: Database) -> None:
    """What is tried for days does not fill a table."""
    for _ in range(FAILURES_KEPT + 3):
        run = await claimed(db)
        assert await db.write(queue.release, run, error="not now")
    kept = await rows(db, "select attempt from failures order by attempt")
    assert [row["attempt"] for row in kept] == list(range(4, FAILURES_KEPT + 4))


@story
async def test_a_story_goes_with_its_session(db: Database) -> None:
    job = await told_of(db)
    run = await claimed(db, f"dispatch:{job.id}:9")
    await db.write(queue.release, run, error="not now")
    assert everything(db.path)["failures"]
    await db.write(lambda tx: retention.erase_session(tx, sessions.get(tx, OWNER, SESSION)))
    assert not everything(db.path)["failures"] and not everything(db.path)["steps"]
