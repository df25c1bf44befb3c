"""Jobs: what they say of themselves, that they end once, and who may look."""

import json
from typing import Any

import pytest

from background import batches, delivery, events, job_rows, jobs, queue, sessions, tasks, terminal
from background.database import Database, Tx
from background.errors import Fault
from tests.background.factories import (
    OWNER,
    at_work,
    brought_to_end,
    chat,
    dispatched,
    ended_job,
    fresh,
    outcome,
    reported,
    running_job,
    sent_by_api,
    settled,
)
from tests.background.story import everything, story
from tests.support.clock import Clock

# -- what it then is


@story
async def test_queued_running_and_ended_are_apart_in_time(db: Database, clock: Clock) -> None:
    """S53, S51."""
    (job,) = await sent_by_api(db)
    clock.advance(10)
    await dispatched(db, job)
    queued = await fresh(db, job)
    clock.advance(10)
    (run,) = await db.write(queue.claim, "w", "job", 1)
    await db.write(tasks.begin, run)
    working = await fresh(db, job)
    clock.advance(10)
    await db.write(terminal.settle, run, outcome())
    ended = await fresh(db, job)
    assert [one.status for one in (queued, working, ended)] == ["queued", "running", "completed"]
    assert (ended.created_at, ended.started_at, ended.completed_at) == (
        clock() - 30_000_000,
        clock() - 10_000_000,
        clock(),
    )
    assert [one.started_at for one in (queued, working)] == [None, clock() - 10_000_000]


@pytest.mark.parametrize(
    ("state", "error", "partial", "by"),
    [
        ("completed", None, False, None),
        ("failed", {"reason": "MODEL_FAILED", "message": "The model failed."}, True, None),
        ("canceled", None, False, "user"),
    ],
)
@story
async def test_an_ended_job_says_how_it_ended(
    db: Database, state: str, error: dict[str, str] | None, partial: bool, by: str | None
) -> None:
    job = await ended_job(db, state, "A report with 28 characters.")
    told = job.public()
    assert (told["status"], told["error"], told["partial"], told["canceled_by"]) == (state, error, partial, by)
    assert told["report_chars"] == (0 if state == "canceled" else 28)
    assert told["excerpt"] == ("" if state == "canceled" else "A report with 28 characters.")
    assert told["notified"] is False
    waits = delivery.NO_NEWS if by == "user" else None
    assert told["delivery"] == {"state": "pending", "attempts": 0, "last_error": waits}
    assert told["completed_at"].endswith("Z")


@pytest.mark.parametrize("status", ["completed", "failed", "canceled"])
@story
async def test_an_end_is_told_once(db: Database, status: str) -> None:
    job = await ended_job(db, status)
    found = await db.read(events.after, OWNER, 0)
    of_job = [event.name for event in found if event.name.startswith("background.")]
    assert of_job == ["background.queued", "background.started", "background.completed"]
    last = json.loads(next(event.data for event in found if event.name == "background.completed"))
    assert (last["id"], last["status"], last["session"]) == (job.id, status, job.session_id)
    assert not {"prompt", "report"} & set(last)


@story
async def test_the_second_end_of_a_job_changes_nothing(db: Database) -> None:
    out = await running_job(db)
    assert await settled(db, out.turn)
    before = everything(db.path)
    assert not await settled(db, out.turn, "failed")
    assert not await db.write(terminal.fail_undispatched, out.job.id, "INTERRUPTED", "late")
    assert everything(db.path) == before


@pytest.mark.parametrize("begun", [False, True])
@story
async def test_a_post_that_gives_up_though_it_was_taken_ends_nothing(db: Database, begun: bool) -> None:
    """S42: the answer was lost, the task is there."""
    (job,) = await sent_by_api(db)
    if begun:
        await at_work(db, job)
    else:
        await dispatched(db, job)
    before = everything(db.path)
    assert not await db.write(terminal.fail_undispatched, job.id, "INTERRUPTED", "It could not be started.")
    assert everything(db.path) == before


@story
async def test_a_job_that_could_never_be_posted_fails_and_is_told(db: Database) -> None:
    (job,) = await sent_by_api(db)
    assert await db.write(terminal.fail_undispatched, job.id, "INTERRUPTED", "It could not be started.")
    told = await fresh(db, job)
    assert (told.status, told.reason, told.task_id, told.delivery) == ("failed", "INTERRUPTED", None, "pending")
    assert (await reported(db, told)).delivery == "pending"


@story
async def test_the_report_s_indexing_is_noted_for_the_attempt_that_wrote_it(db: Database) -> None:
    job = await ended_job(db)
    await db.write(jobs.indexed, job.id, 1)
    assert (await fresh(db, job)).indexed
    job = await db.write(jobs.retry, OWNER, job.id)
    assert not job.indexed
    await db.write(jobs.indexed, job.id, 1)
    assert not (await fresh(db, job)).indexed


# -- looking


@story
async def test_another_s_job_does_not_exist(db: Database) -> None:
    """S26: the same words as for an id that never was."""
    job = await ended_job(db)
    told = set()
    for owner, wanted in (("bob", job.id), (OWNER, "bg-000000000000")):
        for look in (job_rows.get, jobs.retry, jobs.dismiss):
            with pytest.raises(Fault) as caught:
                await db.write(look, owner, wanted)
            told.add((caught.value.kind, caught.value.message))
    assert told == {("not_found", "There is no such job.")}
    assert await db.read(job_rows.page, "bob", limit=10) == []


@story
async def test_a_page_is_narrowed_by_session_status_batch_and_dismissal(db: Database) -> None:
    one, two = await chat(db, "one"), await chat(db, "two")
    (a,) = await sent_by_api(db, "a", session=one)
    (b,) = await sent_by_api(db, "b", session=two)
    b = await brought_to_end(db, b)
    (c,) = await sent_by_api(db, "c", session=two)
    await db.write(jobs.dismiss, OWNER, b.id)

    async def found(**narrow: Any) -> str:
        return "".join(sorted(job.description for job in await db.read(job_rows.page, OWNER, limit=10, **narrow)))

    assert await found() == "ac"
    assert await found(dismissed=None) == "abc"
    assert await found(dismissed=True) == "b"
    assert await found(session="two", dismissed=None) == "bc"
    assert await found(session="nowhere") == ""
    assert await found(status="queued") == "ac"
    assert await found(status="completed", dismissed=None) == "b"
    assert await found(status="input_required") == ""
    assert await found(batch=c.batch_id) == "c"
    assert await found(session="one", batch=a.batch_id, status="queued") == "a"


@story
async def test_pages_follow_each_other_without_a_gap_or_a_double(db: Database, clock: Clock) -> None:
    sent = [job.id for number in range(7) for job in await sent_by_api(db, f"{number}.1", f"{number}.2")]
    seen: list[str] = []
    before = None
    while page := await db.read(job_rows.page, OWNER, limit=3, before=before):
        seen += [job.id for job in page]
        before = (page[-1].created_at, page[-1].id)
        clock.advance(1)
        await sent_by_api(db)  # what comes meanwhile is newer, and not on these pages
    assert sorted(seen) == sorted(sent)


@story
async def test_a_session_s_jobs_are_known_all_and_those_that_are_out(db: Database, clock: Clock) -> None:
    done = await ended_job(db)
    clock.advance(1)
    (out,) = await sent_by_api(db)
    session = await db.read(sessions.get, OWNER, "s")
    assert [job.id for job in await db.read(job_rows.of_session, session.uid, running=False)] == [done.id, out.id]
    assert [job.id for job in await db.read(job_rows.of_session, session.uid, running=True)] == [out.id]


@story
async def test_reading_changes_nothing(db: Database) -> None:
    """S44: not even where it could, on the connection that writes."""
    job = await ended_job(db)
    await at_work(db, (await sent_by_api(db))[0])

    def changes_made(tx: Tx) -> int:
        before = tx.value("select total_changes()")
        job_rows.page(tx, OWNER, limit=50)
        job_rows.get(tx, OWNER, job.id)
        job_rows.of_batch(tx, job.batch_id)
        batches.get(tx, OWNER, job.batch_id)
        delivery.undelivered(tx)
        delivery.waiting(tx, job.session, fired_only=False)
        events.after(tx, OWNER, 0)
        queue.depth(tx)
        return tx.value("select total_changes()") - before

    assert await db.write(changes_made) == 0
