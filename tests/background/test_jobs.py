"""Jobs: sent out whole or not at all, once for each key, ended once, retried under the same id."""

import asyncio
import json
from typing import Any

import pytest

from background import batches, delivery, events, jobs, queue, sessions, tasks, terminal
from background.database import Database, Tx
from background.errors import Fault
from background.jobs import Job, Spec
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
    spec,
)
from tests.background.story import everything, opened, rows, story, value, within
from tests.support.clock import Clock


async def spawn(db: Database, *specs: tuple[str, Spec], batch: str = "b", owner: str = OWNER) -> list[Job]:
    session = await chat(db, owner=owner)
    return await db.write(jobs.spawn, session, batch, specs, closed=True)


async def refused(db: Database, *specs: tuple[str, Spec]) -> Fault:
    await chat(db)
    before = everything(db.path)
    with pytest.raises(Fault) as caught:
        await spawn(db, *specs)
    assert everything(db.path) == before
    return caught.value


# -- sending out


@story
async def test_a_spawn_is_the_job_its_batch_and_the_run_that_will_post_it(db: Database, clock: Clock) -> None:
    (job,) = await spawn(db, ("k", Spec("A look", "Look into it.", "researcher", ("memory_recall",))))
    assert (job.status, job.attempts, job.task_id, job.created_at) == ("queued", 1, None, clock())
    assert (job.subagent_type, job.tools, job.delivery) == ("researcher", ("memory_recall",), "none")
    (run,) = await rows(db, "select kind, key, params, state from runs")
    assert run == {
        "kind": "dispatch",
        "key": f"dispatch:{job.id}:1",
        "params": json.dumps({"job": job.id, "attempt": 1}),
        "state": "queued",
    }
    batch, members, joins = await db.read(batches.get, OWNER, "b")
    assert (batch["closed_at"], [member["job_id"] for member in members], joins) == (clock(), [job.id], [])


@story
async def test_an_id_says_nothing_and_has_the_form_that_is_promised(db: Database) -> None:
    found = await spawn(db, *((f"k{number}", spec()) for number in range(20)))
    assert len({job.id for job in found}) == 20
    for job in found:
        prefix, _, digits = job.id.partition("-")
        assert prefix == "bg"
        assert len(bytes.fromhex(digits)) == 6


@story
async def test_jobs_of_one_call_stand_start_and_are_listed_in_the_order_in_which_they_were_asked_for(
    db: Database,
) -> None:
    asked = [f"look {number}" for number in range(10)]
    sent = await spawn(db, *((f"key {text}", spec(text)) for text in asked))
    assert [job.description for job in sent] == asked
    assert [job.description for job in await db.read(jobs.of_batch, "b")] == asked
    assert [job.description for job in await db.read(jobs.page, OWNER, limit=50)] == asked[::-1]
    for job in sent:
        (run,) = await db.write(queue.claim, "w", "dispatch", 50)
        assert run.params["job"] == job.id
        await db.write(queue.finish, run)


@story
async def test_the_same_key_again_is_the_same_job(db: Database, clock: Clock) -> None:
    """S42: one row and one run, however often, at once, through two processes, and after its end."""
    await chat(db)
    async with opened(db.path, clock) as other:
        asked = [spawn(here, ("k", spec()), batch=f"b{n}") for n, here in enumerate([db, other] * 5)]
        found = await asyncio.gather(*asked)
    assert len({job.id for (job,) in found}) == 1
    job = await brought_to_end(db, found[0][0])
    assert await spawn(db, ("k", spec()), batch="later") == [job]
    assert await value(db, "select count(*) from runs where kind = 'dispatch'") == 1
    assert await value(db, "select count(*) from batches") == 1


@story
async def test_keys_that_are_there_and_new_ones_can_come_together(db: Database) -> None:
    (old,) = await spawn(db, ("old", spec()), batch="first")
    found = await spawn(db, ("new", spec("new")), ("old", spec()), batch="second")
    assert [job.description for job in found] == ["new", "a look"]
    assert found[1].id == old.id
    members = await rows(db, "select batch_id, job_id from members order by batch_id")
    assert members == [
        {"batch_id": "first", "job_id": old.id},
        {"batch_id": "second", "job_id": found[0].id},
    ]


@story
async def test_a_key_with_another_prompt_refuses_the_whole(db: Database) -> None:
    await spawn(db, ("api:k", spec(prompt="one")))
    fault = await refused(db, ("new", spec()), ("api:k", spec(prompt="another")))
    assert (fault.kind, fault.details) == ("conflict", {"key": "k"})


@story
async def test_one_key_twice_in_a_list_refuses_the_whole(db: Database) -> None:
    assert (await refused(db, ("k", spec()), ("k", spec()))).kind == "invalid"


@story
async def test_a_key_is_its_owner_s(db: Database) -> None:
    (mine,) = await spawn(db, ("k", spec()))
    (theirs,) = await spawn(db, ("k", spec(prompt="another")), batch="c", owner="bob")
    assert mine.id != theirs.id


@within(max_queued_jobs=3)
async def test_a_fan_out_past_the_limit_is_refused_whole_and_the_limit_is_exact(db: Database) -> None:
    """S80."""
    await spawn(db, ("a", spec()))
    fault = await refused(db, *((f"k{number}", spec()) for number in range(3)))
    assert (fault.kind, fault.reason, fault.details["limit"]) == ("limit", "QUEUE_LIMIT", 3)
    await spawn(db, ("b", spec()), ("c", spec()), ("a", spec()), batch="fits")
    assert (await refused(db, ("d", spec()))).reason == "QUEUE_LIMIT"
    await spawn(db, ("theirs", spec()), batch="bob's", owner="bob")
    assert len(await spawn(db, ("a", spec()), ("b", spec()), ("c", spec()), batch="nothing new")) == 3


@within(max_queued_jobs=1)
async def test_what_has_begun_does_not_count_as_waiting(db: Database) -> None:
    (job,) = await spawn(db, ("a", spec()))
    await at_work(db, job)
    await spawn(db, ("b", spec()), batch="c")


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
    assert told["delivery"] == {"state": "pending", "attempts": 0, "last_error": None}
    assert told["completed_at"].endswith("Z")


@pytest.mark.parametrize("status", ["completed", "failed", "canceled"])
@story
async def test_an_end_is_told_once(db: Database, status: str) -> None:
    job = await ended_job(db, status)
    found = await db.read(events.after, OWNER, 0)
    of_job = [row["name"] for row in found if row["name"].startswith("background.")]
    assert of_job == ["background.queued", "background.started", "background.completed"]
    last = json.loads(next(row["data"] for row in found if row["name"] == "background.completed"))
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


# -- again


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
    assert [row["name"] for row in found if row["name"] == "background.completed"] == ["background.completed"] * 2


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


# -- looking


@story
async def test_another_s_job_does_not_exist(db: Database) -> None:
    """S26: the same words as for an id that never was."""
    job = await ended_job(db)
    told = set()
    for owner, wanted in (("bob", job.id), (OWNER, "bg-000000000000")):
        for look in (jobs.get, jobs.retry, jobs.dismiss):
            with pytest.raises(Fault) as caught:
                await db.write(look, owner, wanted)
            told.add((caught.value.kind, caught.value.message))
    assert told == {("not_found", "There is no such job.")}
    assert await db.read(jobs.page, "bob", limit=10) == []


@story
async def test_a_page_is_narrowed_by_session_status_batch_and_dismissal(db: Database) -> None:
    one, two = await chat(db, "one"), await chat(db, "two")
    (a,) = await sent_by_api(db, "a", session=one)
    (b,) = await sent_by_api(db, "b", session=two)
    b = await brought_to_end(db, b)
    (c,) = await sent_by_api(db, "c", session=two)
    await db.write(jobs.dismiss, OWNER, b.id)

    async def found(**narrow: Any) -> str:
        return "".join(sorted(job.description for job in await db.read(jobs.page, OWNER, limit=10, **narrow)))

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
    while page := await db.read(jobs.page, OWNER, limit=3, before=before):
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
    assert [job.id for job in await db.read(jobs.of_session, session.uid, running=False)] == [done.id, out.id]
    assert [job.id for job in await db.read(jobs.of_session, session.uid, running=True)] == [out.id]


@story
async def test_reading_changes_nothing(db: Database) -> None:
    """S44: not even where it could, on the connection that writes."""
    job = await ended_job(db)
    await at_work(db, (await sent_by_api(db))[0])

    def changes_made(tx: Tx) -> int:
        before = tx.value("select total_changes()")
        jobs.page(tx, OWNER, limit=50)
        jobs.get(tx, OWNER, job.id)
        jobs.of_batch(tx, job.batch_id)
        batches.get(tx, OWNER, job.batch_id)
        delivery.undelivered(tx)
        delivery.waiting(tx, job.session, fired_only=False)
        events.after(tx, OWNER, 0)
        queue.depth(tx)
        return tx.value("select total_changes()") - before

    assert await db.write(changes_made) == 0
