"""Parked tasks: asked once, answered once, and until then everything of their session waits for the answer."""

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from background import (
    acceptance,
    events,
    job_rows,
    journal,
    messages,
    questions,
    queue,
    results,
    tasks,
    terminal,
    worker,
)
from background.acceptance import Accepted
from background.database import Database, Tx
from background.errors import Fault
from background.limits import MINUTE, SECOND
from background.questions import Question
from background.states import A2A
from tests.background.asking import (
    FITTING,
    FORM,
    STATES,
    answered,
    claim,
    every_kind,
    goes_on,
    parked,
    question,
    refused,
)
from tests.background.factories import (
    OWNER,
    at_work,
    begun,
    ended_job,
    fresh,
    heard_of,
    message,
    nudged,
    nudges,
    running,
    running_job,
    sent_by_api,
    settled,
    submitted,
)
from tests.background.story import everything, log_of, opened, rows, story, value, within
from tests.support.clock import Clock

# -- parked


@every_kind
@story
async def test_a_parked_task_says_what_it_waits_for_and_works_no_more(db: Database, clock: Clock, kind: str) -> None:
    asks = question(kind)
    turn = await parked(db, asks, deadline=clock() + MINUTE)
    while await db.write(journal.project):
        pass
    view = await db.read(journal.view, OWNER, turn.task.id)
    assert view is not None
    assert (view.state, view.parked, view.ended, view.result) == (STATES[kind], True, False, None)
    assert A2A[view.state].startswith("TASK_STATE_")
    shown = view.question
    assert shown is not None
    assert (shown.kind, shown.key, shown.text, shown.detail, shown.schema) == (
        asks.kind,
        asks.key,
        asks.text,
        asks.detail,
        asks.schema,
    )
    assert (shown.digest, shown.deadline, shown.asked_at, shown.answered_at) == (
        asks.digest,
        clock() + MINUTE,
        clock(),
        None,
    )
    (run,) = await rows(db, "select state, worker, lease_until, ended_at from runs where kind = 'turn'")
    assert run == {"state": "parked", "worker": None, "lease_until": None, "ended_at": None}


@story
async def test_the_question_stands_in_log_and_history_with_its_text_first_and_the_digest_to_answer_with(
    db: Database,
) -> None:
    asks = question("form", detail="From one to five.")
    turn = await parked(db, asks)
    log = await log_of(db, turn.task.session, 10, None)
    assert [(said.role, said.kind, said.text) for said in log] == [
        ("user", "user", "hello"),
        ("agent", "agent", f"{asks.text}\n\n{asks.detail}"),
    ]
    _, told = await db.read(messages.history, turn.task.id, None)
    assert told["role"] == "ROLE_AGENT"
    assert [part.get("text") or part["data"] for part in told["parts"]] == [asks.text, asks.detail, FORM]
    assert told["metadata"] == {"question": asks.digest, "kind": "form"}


@story
async def test_whoever_waits_for_the_task_is_woken_when_it_is_parked(db: Database) -> None:
    """A blocking send returns then, as at an end; a stream is told the state and its question."""
    turn = await running(db)
    while await db.write(journal.project):
        pass
    with db.bell.listen(f"end:{turn.task.id}") as ear:
        await parked(db, question("approval"), turn=turn)
        await db.write(journal.project)
        assert await ear.wait(0)
    (told,) = await db.read(journal.after, turn.task.id, 2)
    assert (told.state, told.artifact, told.question and told.question.text) == (
        "input_required",
        None,
        question("approval").text,
    )


@story
async def test_a_console_hears_that_a_turn_is_parked_and_that_it_goes_on(db: Database) -> None:
    await answered(db, await parked(db))
    told = await db.read(events.after, OWNER, 0)
    assert [event.name for event in told] == ["turn.started", "turn.finished", "turn.started"]
    assert '"state": "input_required"' in told[1].data


@story
async def test_a_parked_job_shows_its_question_and_goes_on_when_that_is_answered(db: Database) -> None:
    out = await running_job(db)
    turn = await parked(db, question("approval"), turn=out.turn)
    job = await fresh(db, out.job)
    assert (job.status, job.completed_at, job.ended) == ("input_required", None, False)
    assert job.question is not None
    assert (job.question.text, job.question.detail) == (question("approval").text, "rm -rf build")
    assert [one.id for one in await db.read(job_rows.page, OWNER, limit=9, status="input_required")] == [job.id]
    await answered(db, turn, "deny", session_id=turn.task.session_id)
    job = await fresh(db, job)
    assert (job.status, job.question) == ("running", None)
    assert await settled(db, await goes_on(db, turn), text="The report.")
    assert (await fresh(db, job)).status == "completed"


@story
async def test_the_time_that_a_turn_waits_is_not_its_run_time(db: Database, clock: Clock) -> None:
    turn = await running(db)
    clock.advance(5)
    assert await db.write(terminal.park, turn.run, question())
    clock.advance(3600)
    await answered(db, turn)
    (run,) = await claim(db)
    assert run.spent == 5 * SECOND


@story
async def test_an_attempt_that_is_over_parks_nothing(db: Database) -> None:
    turn = await running(db)
    await db.write(queue.release, turn.run)
    await begun(db, turn.task)
    before = everything(db.path)
    assert not await db.write(terminal.park, turn.run, question())
    assert everything(db.path) == before


@story
async def test_no_sweep_and_no_worker_takes_a_parked_run_however_long_it_waits(db: Database, clock: Clock) -> None:
    turn = await parked(db)
    clock.advance(30 * 24 * 3600)
    await heard_of(db)
    await db.write(worker.sweep, "w")
    assert await claim(db) == []
    assert (await db.read(tasks.by_id, turn.task.id)).state == "input_required"
    assert await db.read(questions.current, turn.task.id) is not None


@within(max_open_tasks=1)
async def test_a_parked_task_is_unfinished_and_counts_as_one(db: Database) -> None:
    await parked(db)
    with pytest.raises(Fault) as caught:
        await db.write(acceptance.accept, message(session_id="another"))
    assert caught.value.reason == "OPEN_TASKS_LIMIT_REACHED"


@pytest.mark.parametrize(
    "differences",
    [{"kind": "approval"}, {"key": "other"}, {"text": "Else?"}, {"detail": "more"}, {"schema": {"type": "object"}}],
    ids=lambda differences: next(iter(differences)),
)
def test_a_question_that_differs_in_anything_has_another_digest(differences: dict[str, Any]) -> None:
    asks = question()
    assert replace(asks, **differences).digest != asks.digest
    assert replace(asks).digest == asks.digest


# -- the session's lane


@story
async def test_whatever_comes_for_the_session_waits_until_the_question_is_answered_and_then_keeps_its_order(
    db: Database,
) -> None:
    """A turn that came first would change what the question was about. Others' sessions do not wait."""
    turn = await parked(db)
    second, third = await submitted(db, "second"), await submitted(db, "third")
    await ended_job(db)
    (key,) = await nudges(db)
    nudge = await nudged(db, key)
    elsewhere = await submitted(db, session_id="another")
    assert [run.task_id for run in await claim(db)] == [elsewhere.id]
    await answered(db, turn)
    for task in (turn.task, second, third, nudge):
        (run,) = await claim(db)
        assert run.task_id == task.id
        await db.write(tasks.begin, run)
        await db.write(terminal.settle, run, terminal.Outcome("completed"))
    assert await claim(db) == []


@story
async def test_one_of_those_that_wait_may_be_canceled_while_the_answered_task_has_the_lane(db: Database) -> None:
    """Its run is the youngest of the lane and its head all the same."""
    turn = await parked(db)
    second, third = await submitted(db, "second"), await submitted(db, "third")
    await answered(db, turn)
    assert await db.write(terminal.cancel_task, third, "user")
    assert [run.task_id for run in await claim(db)] == [turn.task.id]
    assert await db.write(terminal.cancel_task, turn.task, "user")
    assert [run.task_id for run in await claim(db)] == [second.id]


@story
async def test_one_of_those_that_wait_may_be_canceled_while_the_task_is_parked(db: Database) -> None:
    turn = await parked(db)
    second, third = await submitted(db, "second"), await submitted(db, "third")
    assert await db.write(terminal.cancel_task, second, "user")
    assert await claim(db) == []
    await answered(db, turn)
    assert await settled(db, await goes_on(db, turn))
    assert [run.task_id for run in await claim(db)] == [third.id]


# -- not answered in time


@story
async def test_a_question_that_nobody_answers_in_time_fails_its_task_and_frees_the_session(
    db: Database, clock: Clock
) -> None:
    turn = await parked(db, deadline=clock() + MINUTE)
    behind = await submitted(db, "behind it")
    assert await claim(db, "expire") == []
    clock.advance(60)
    (run,) = await claim(db, "expire")
    assert run.params == {"task": turn.task.id, "revision": 3}
    assert await db.write(terminal.expire, turn.task.id, 3)
    end = (await db.read(tasks.ends, [turn.task.id]))[turn.task.id]
    assert (end.state, end.reason, end.detail) == ("failed", "TIMED_OUT", terminal.NO_ANSWER)
    assert await db.read(results.read, turn.task.id) == results.Result([], None)
    assert await db.read(questions.current, turn.task.id) is None
    assert (await refused(db, turn)).kind == "refused"
    assert (await begun(db, behind)).task.state == "working"


@story
async def test_a_job_whose_question_nobody_answers_fails_and_is_told(db: Database, clock: Clock) -> None:
    (sent,) = await sent_by_api(db)
    out = await at_work(db, sent)
    turn = await parked(db, turn=out.turn, deadline=clock() + MINUTE)
    clock.advance(60)
    assert await db.write(terminal.expire, turn.task.id, 3)
    job = await fresh(db, sent)
    assert (job.status, job.reason, job.delivery, job.question) == ("failed", "TIMED_OUT", "pending", None)


@story
async def test_from_its_deadline_on_a_question_takes_no_answer_whoever_is_first(db: Database, clock: Clock) -> None:
    turn = await parked(db, deadline=clock() + MINUTE)
    clock.advance(60)
    fault = await refused(db, turn)
    assert (fault.kind, "over" in fault.message) == ("refused", True)


@story
async def test_a_deadline_that_comes_too_late_changes_nothing(db: Database, clock: Clock) -> None:
    """The question was answered, another is open, or the task has ended."""
    turn = await parked(db, deadline=clock() + MINUTE)
    await answered(db, turn)

    async def changes_nothing() -> None:
        before = everything(db.path)
        assert not await db.write(terminal.expire, turn.task.id, 3)
        assert everything(db.path) == before

    await changes_nothing()
    again = await parked(db, question(key="again"), turn=await goes_on(db, turn))
    await changes_nothing()
    assert await db.write(terminal.cancel_task, again.task, "user")
    await changes_nothing()
    assert not await db.write(terminal.expire, turn.task.id, 5)


# -- canceled


@every_kind
@story
async def test_a_parked_task_is_canceled_like_any_other(db: Database, kind: str) -> None:
    turn = await parked(db, question(kind))
    behind = await submitted(db, "behind it")
    assert await db.write(terminal.cancel_task, turn.task, "user")
    assert (await db.read(tasks.by_id, turn.task.id)).state == "canceled"
    assert await db.read(questions.current, turn.task.id) is None
    while await db.write(journal.project):
        pass
    view = await db.read(journal.view, OWNER, turn.task.id)
    assert view is not None
    assert (view.state, view.question) == ("canceled", None)
    assert (await refused(db, turn, **FITTING.get(kind, {}))).kind == "refused"
    assert (await begun(db, behind)).task.state == "working"
    assert not await db.write(terminal.cancel_task, turn.task, "user")


@story
async def test_a_parked_job_is_canceled_with_its_task(db: Database) -> None:
    out = await running_job(db)
    turn = await parked(db, turn=out.turn)
    job = await db.write(terminal.cancel_job, await fresh(db, out.job), "user")
    assert (job.status, job.canceled_by, job.question) == ("canceled", "user", None)
    assert (await db.read(tasks.by_id, turn.task.id)).state == "canceled"


# -- at once

ROUNDS = 40


async def _both(chance: random.Random, *attempts: Any) -> list[Any]:
    """What came of each; they start at one moment, in a random order."""
    order = list(range(len(attempts)))
    chance.shuffle(order)
    told = await asyncio.gather(*(attempts[place]() for place in order), return_exceptions=True)
    return [told[order.index(place)] for place in range(len(attempts))]


@story
async def test_a_question_is_answered_or_its_time_is_over_and_never_both(db: Database, clock: Clock) -> None:
    chance, ends = random.Random(3), set()
    async with opened(db.path, clock) as other:
        for number in range(ROUNDS):
            turn = await parked(db, session_id=f"s{number}", deadline=clock() + MINUTE)
            sent = message("This one.", task_id=turn.task.id)
            await heard_of(db)
            expired, taken = await _both(
                chance,
                lambda turn=turn: other.write(terminal.expire, turn.task.id, 3),
                lambda sent=sent: db.write(acceptance.accept, sent),
            )
            state = (await db.read(tasks.by_id, turn.task.id)).state
            assert state == ("failed" if expired else "working")
            assert isinstance(taken, Fault if expired else Accepted)
            runs = await rows(db, "select state from runs where task_id = :id order by id", id=turn.task.id)
            assert [run["state"] for run in runs] == (["failed"] if expired else ["done", "queued"])
            ends.add(state)
            await db.write(terminal.cancel_task, turn.task, "user")
    assert ends == {"failed", "working"}, "the rounds were all alike, and show nothing"


@story
async def test_a_cancel_is_never_lost_to_an_answer(db: Database, clock: Clock) -> None:
    chance, seen = random.Random(4), set()
    async with opened(db.path, clock) as other:
        for number in range(ROUNDS):
            turn = await parked(db, session_id=f"s{number}")
            sent = message("This one.", task_id=turn.task.id)
            confirmed, taken = await _both(
                chance,
                lambda turn=turn: other.write(terminal.cancel_task, turn.task, "user"),
                lambda sent=sent: db.write(acceptance.accept, sent),
            )
            assert confirmed is True
            assert (await db.read(tasks.by_id, turn.task.id)).state == "canceled"
            assert await claim(db) == []
            open_runs = "select count(*) from runs where task_id = :id and ended_at is null"
            assert await value(db, open_runs, id=turn.task.id) == 0
            seen.add(type(taken))
    assert seen == {Accepted, Fault}, "the rounds were all alike, and show nothing"


def test_a_signal_to_park_is_no_exception_that_a_tool_could_eat() -> None:
    signal = questions.Parks(Question("question", "k", "Which?"))
    assert not isinstance(signal, Exception)
    assert signal.question.text == "Which?"


@story
async def test_an_open_question_is_found_by_an_index(db: Database) -> None:
    def crowd(tx: Tx) -> list[str]:
        return [
            row["detail"]
            for row in tx.q("explain query plan select * from questions where task_id = 't' and answered_at is null")
        ]

    assert "SEARCH" in (await db.read(crowd))[0]
