"""How tasks and jobs end: by one road, once, with all that must come of it in the same commit."""

import json

import pytest

from background import batches, earlier, events, job_rows, journal, queue, results, tasks, terminal
from background.database import Database
from background.errors import Fault
from background.states import TASK_ENDS
from background.tasks import End
from tests.background.factories import (
    OWNER,
    artifact,
    at_work,
    begun,
    claimed,
    dispatched,
    ended,
    ended_job,
    fan,
    fresh,
    nudged,
    nudges,
    outcome,
    running,
    running_job,
    sent_by_api,
    settled,
    submitted,
    taken_up,
)
from tests.background.story import everything, log_of, rows, story, value
from tests.support.clock import Clock

ENDS = ("completed", "failed", "canceled")


async def turn_events(db: Database) -> list[tuple[str, str | None]]:
    """Each turn event's name and state."""
    found = await db.read(events.after, OWNER, 0)
    return [(event.name, json.loads(event.data).get("state")) for event in found if event.name.startswith("turn.")]


# -- settled


@pytest.mark.parametrize("state", ENDS)
@story
async def test_an_end_is_the_task_s_its_run_s_its_log_s_and_its_result_s_at_once(
    db: Database, clock: Clock, state: str
) -> None:
    turn = await running(db)
    clock.advance(3)
    await settled(db, turn, state, "What there is.")
    assert len(everything(db.path)["results"]) == 1
    assert await rows(db, "select state, at from revisions where revision = 3") == [{"state": state, "at": clock()}]
    (task,) = await rows(db, "select state, reason, detail, ended_at, revision from tasks")
    (run,) = await rows(db, "select state, ended_at, worker from runs")
    assert (task["state"], task["ended_at"], task["revision"]) == (state, clock(), 3)
    assert (run["state"], run["ended_at"], run["worker"]) == (TASK_ENDS[state], clock(), None)
    log = await log_of(db, turn.task.session, 10, None)
    assert [(said.kind, said.task_id) for said in log] == [("user", turn.task.id), ("agent", turn.task.id)]
    assert await turn_events(db) == [("turn.started", None), ("turn.finished", state)]


@story
async def test_a_failure_keeps_its_reason_and_what_text_there_was(db: Database) -> None:
    turn = await running(db)
    failed = outcome("failed", "Half an ans", reason="OUTPUT_LIMIT", detail="It was cut off.")
    await db.write(terminal.settle, turn.run, failed)
    end = (await db.read(tasks.ends, [turn.task.id]))[turn.task.id]
    assert (end.reason, end.detail) == ("OUTPUT_LIMIT", "It was cut off.")
    result = await db.read(results.read, turn.task.id)
    assert result is not None
    assert (result.artifacts, result.partial, result.text) == ([], "Half an ans", "Half an ans")


@story
async def test_completed_without_an_artifact_is_an_end_like_any_other_and_says_nothing_in_the_log(db: Database) -> None:
    turn = await running(db)
    assert await settled(db, turn, text="")
    result = await db.read(results.read, turn.task.id)
    assert result is not None
    assert result.artifacts == []
    log = await log_of(db, turn.task.session, 10, None)
    assert [said.kind for said in log] == ["user"]


@story
async def test_the_first_end_wins_and_the_second_is_told_so_and_writes_nothing(db: Database) -> None:
    """A02: each late state is refused in the same way."""
    for first in ENDS:
        turn = await running(db, session_id=first)
        if first == "canceled":
            assert await db.write(terminal.cancel_task, turn.task, "user")
        else:
            assert await settled(db, turn, first, "first")
        before = everything(db.path)
        for late in ENDS:
            assert not await settled(db, turn, late, "late")
        assert not await db.write(terminal.cancel_task, turn.task, "user")
        assert not await db.write(terminal.settle_expired, turn.run.id, turn.task.id, outcome("failed"))
        assert not await db.write(results.record, turn.task.id, [artifact("late")])
        assert everything(db.path) == before


@story
async def test_an_attempt_that_is_over_cannot_end_the_task(db: Database) -> None:
    turn = await running(db)
    await db.write(queue.release, turn.run)
    again = await begun(db, turn.task)
    assert not await settled(db, turn, text="of the first attempt")
    assert await settled(db, again, text="of the second")
    result = await db.read(results.read, turn.task.id)
    assert result is not None
    assert result.text == "of the second"


@story
async def test_what_cannot_be_kept_ends_nothing(db: Database) -> None:
    """A COMPLETED task without its result cannot exist."""
    turn = await running(db)
    before = everything(db.path)
    odd = {"artifactId": "a", "parts": [{"data": float("nan")}]}
    with pytest.raises(ValueError, match="JSON compliant"):
        await db.write(terminal.settle, turn.run, outcome("completed", artifacts=[odd]))
    assert everything(db.path) == before
    assert await settled(db, turn, "failed")


@story
async def test_the_next_of_the_session_comes_up_with_the_end(db: Database) -> None:
    turn = await running(db)
    waiting = await submitted(db, "next")
    await settled(db, turn, "failed")
    assert (await begun(db, waiting)).task.state == "working"


@pytest.mark.parametrize("state", ENDS)
@story
async def test_a_job_ends_as_its_task_does(db: Database, state: str) -> None:
    out = await running_job(db)
    await settled(db, out.turn, state, "The report.")
    job = await fresh(db, out.job)
    assert (job.status, job.delivery) == (state, "pending")
    assert await value(db, "select state from tasks where id = :id", id=job.task_id) == state
    assert await value(db, "select status from members where job_id = :id", id=job.id) == state
    assert await value(db, "select state from runs where key = :key", key=f"report:{job.id}:1") == "queued"
    assert await turn_events(db) == []


@story
async def test_a_report_is_kept_byte_for_byte_and_counted_in_code_points(db: Database) -> None:
    text = "Ünïcödé ☃ 😀\r\n\ttabs  and   blanks \n" * 2000
    job = await ended_job(db, text=text)
    result = await db.read(results.read, job.task_id)
    assert result is not None
    assert result.text == text
    assert job.report_chars == len(text)


# -- canceled


@pytest.mark.parametrize("stage", ["queued", "waiting", "running"])
@story
async def test_a_task_is_canceled_wherever_it_is(db: Database, stage: str) -> None:
    if stage == "waiting":
        await submitted(db, "ahead of it")
    task = (await running(db)).task if stage == "running" else await submitted(db)
    with db.bell.listen("ended") as ear:
        assert await db.write(terminal.cancel_task, task, "user")
        assert await ear.wait(0)
    assert await db.read(tasks.ends, [task.id]) == {task.id: End("canceled", None, "Canceled by its user.", db.now())}
    assert await value(db, "select state from runs where task_id = :id", id=task.id) == "canceled"


@pytest.mark.parametrize("stage", ["undispatched", "dispatched", "running"])
@pytest.mark.parametrize("by", ["user", "agent", "plugin"])
@story
async def test_a_job_is_canceled_wherever_it_is_and_says_by_whom(db: Database, stage: str, by: str) -> None:
    """S55, S56."""
    (job,) = await sent_by_api(db)
    if stage == "dispatched":
        await dispatched(db, job)
    elif stage == "running":
        await at_work(db, job)
    job = await db.write(terminal.cancel_job, await fresh(db, job), by)
    assert (job.status, job.canceled_by, job.reason, job.delivery) == ("canceled", by, None, "pending")
    left = await rows(db, "select kind, state from runs where ended_at is null order by kind")
    assert left == [{"kind": "join", "state": "queued"}, {"kind": "report", "state": "queued"}]
    if stage != "undispatched":
        assert await value(db, "select state from tasks where id = :id", id=job.task_id) == "canceled"


@pytest.mark.parametrize("state", ENDS)
@story
async def test_canceling_an_ended_job_names_how_it_ended(db: Database, state: str) -> None:
    job = await ended_job(db, state)
    before = everything(db.path)
    for _ in range(2):
        with pytest.raises(Fault) as caught:
            await db.write(terminal.cancel_job, job, "user")
        assert (caught.value.kind, caught.value.details) == ("conflict", {"status": state})
    assert everything(db.path) == before


@story
async def test_canceling_a_turn_does_not_touch_its_jobs(db: Database) -> None:
    """S58."""
    sent = await fan(db, 2, closed=False)
    await db.write(terminal.cancel_task, sent.turn.task, "user")
    assert [(await fresh(db, out.job)).status for out in sent.outs] == ["running", "running"]
    batch, _, _ = await db.read(batches.get, OWNER, sent.batch)
    assert batch["closed_at"] is not None


@story
async def test_canceling_one_of_a_batch_touches_no_other(db: Database) -> None:
    sent = await fan(db, 3)
    await db.write(terminal.cancel_job, sent.outs[1].job, "user")
    assert [(await fresh(db, out.job)).status for out in sent.outs] == ["running", "canceled", "running"]


# -- folded


@story
async def test_a_nudge_whose_jobs_a_running_turn_took_up_is_folded_into_it(db: Database) -> None:
    job = await ended_job(db)
    turn = await running(db)
    (key,) = await nudges(db)
    nudge = await nudged(db, key)
    assert await db.read(tasks.waiting_nudges, turn.task.session) == [nudge]
    assert await taken_up(db, turn) == [job.id]
    assert await db.write(terminal.fold, nudge, turn.task)
    await db.write(journal.project)
    view = await db.read(journal.view, OWNER, nudge.id)
    assert view is not None
    assert (view.state, view.folded_into) == ("completed", turn.task.id)
    assert view.result is not None
    assert view.result.artifacts == []
    assert await db.read(tasks.waiting_nudges, turn.task.session) == []
    await settled(db, turn)
    assert (await fresh(db, job)).delivery_task == turn.task.id


@story
async def test_a_nudge_is_folded_once_and_not_after_it_has_begun(db: Database) -> None:
    await ended_job(db)
    turn = await running(db)
    (key,) = await nudges(db)
    nudge = await nudged(db, key)
    assert [await db.write(terminal.fold, nudge, turn.task) for _ in range(2)] == [True, False]
    await settled(db, turn)
    await ended_job(db)
    begun_nudge = await begun(db, await nudged(db, (await nudges(db))[0]))
    assert not await db.write(terminal.fold, begun_nudge.task, turn.task)
    assert (await db.read(tasks.by_id, begun_nudge.task.id)).state == "working"


@story
async def test_folding_lets_the_lane_go_on(db: Database) -> None:
    await ended_job(db)
    turn = await running(db)
    nudge = await nudged(db, (await nudges(db))[0])
    behind = await submitted(db, "behind the nudge")
    await db.write(terminal.fold, nudge, turn.task)
    await settled(db, turn)
    assert (await begun(db, behind)).task.state == "working"


@story
async def test_a_folded_nudge_is_no_past_turn(db: Database) -> None:
    await ended_job(db)
    turn = await running(db)
    await db.write(terminal.fold, await nudged(db, (await nudges(db))[0]), turn.task)
    await settled(db, turn)
    now = await running(db)
    past = await db.read(earlier.turns, now.task.session, now.task.id, 10)
    assert [(earlier.state, earlier.transcript) for earlier in past] == [("completed", "[]")]


# -- results


@story
async def test_a_result_is_written_once(db: Database) -> None:
    task = await ended(db, text="first")
    assert not await db.write(results.record, task.id, [artifact("second")], "partial")
    result = await db.read(results.read, task.id)
    assert result is not None
    assert (result.text, result.partial) == ("first", None)


@story
async def test_a_result_comes_back_as_it_was_given(db: Database) -> None:
    """A86: numbers too."""
    turn = await running(db)
    given = [
        {"artifactId": "one", "parts": [{"text": "é☃😀"}, {"data": {"big": 9007199254740993, "f": 1.5, "n": None}}]},
        {"artifactId": "two", "parts": [{"text": "more"}, {"raw": "dGNr", "mediaType": "application/x"}]},
    ]
    await db.write(terminal.settle, turn.run, outcome("completed", artifacts=given))
    result = await db.read(results.read, turn.task.id)
    assert result is not None
    assert result.artifacts == given
    assert result.text == "é☃😀\n\nmore"


@story
async def test_there_is_no_result_before_the_end_and_of_no_task(db: Database) -> None:
    turn = await running(db)
    await claimed(db)
    assert await db.read(results.read, turn.task.id) is None
    assert await db.read(results.read, None) is None


@story
async def test_a_job_that_was_never_posted_has_no_result(db: Database) -> None:
    (job,) = await sent_by_api(db)
    job = await db.write(terminal.cancel_job, job, "user")
    assert await db.read(results.read, job.task_id) is None
    assert isinstance(job, job_rows.Job)
