"""Answers: checked before anything changes, taken once, and found again by the step that asked."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from background import acceptance, checkpoints, events, journal, messages, questions, sessions, tasks
from background.acceptance import Accepted
from background.database import Database
from background.errors import Fault
from background.limits import MINUTE
from background.questions import Answer
from tests.background.asking import (
    FITTING,
    FORM,
    answered,
    asked_of,
    claim,
    every_kind,
    goes_on,
    parked,
    question,
    refused,
)
from tests.background.factories import (
    Turn,
    heard_of,
    message,
)
from tests.background.story import everything, log_of, opened, story, value
from tests.support.clock import Clock


@every_kind
@story
async def test_an_answered_task_goes_on_as_the_next_run_and_finds_the_answer_by_its_step(
    db: Database, clock: Clock, kind: str
) -> None:
    turn = await parked(db, question(kind), deadline=clock() + MINUTE)
    accepted = await answered(db, turn, **FITTING.get(kind, {}))
    assert accepted == Accepted(turn.task.id, new=True, revision=4)
    assert await db.read(questions.current, turn.task.id) is None
    (run,) = await claim(db)
    assert (run.task_id, run.attempt, run.lane) == (turn.task.id, 1, turn.run.lane)
    task, begins = await db.write(tasks.begin, run)
    assert (task.state, begins) == ("working", False)
    kept = Answer.of((await db.read(checkpoints.of_task, task.id))["answer:which"])
    assert (
        kept
        == {
            "question": Answer("This one."),
            "form": Answer("This one.", {"size": 3}),
            "approval": Answer("approve", approved=True),
            "auth": Answer("This one."),
        }[kind]
    )
    assert await value(db, "select state from runs where kind = 'expire'") == "canceled"
    said = [
        each.get("metadata", {}).get("kind", each["role"]) for each in await db.read(messages.history, task.id, None)
    ]
    assert said == ["ROLE_USER", kind, "ROLE_USER"]


@pytest.mark.parametrize(
    ("word", "approved"),
    [("approve", True), (" Approve\n", True), ("APPROVE", True), ("deny", False), ("Deny ", False)],
)
@story
async def test_an_approval_is_one_of_two_words(db: Database, word: str, approved: bool) -> None:
    turn = await parked(db, question("approval"))
    await answered(db, turn, word)
    kept = await db.read(checkpoints.of_task, turn.task.id)
    assert Answer.of(kept["answer:which"]).approved is approved


NO_ANSWERS: dict[str, tuple[str, str, Any, str]] = {
    "a question: nothing": ("question", " \n", None, "message.parts"),
    "an approval: yes": ("approval", "yes", None, "message.parts"),
    "an approval: nothing": ("approval", "", None, "message.parts"),
    "an approval: approve, and more": ("approval", "approve it", None, "message.parts"),
    "an approval: data alone": ("approval", "", {"approved": True}, "message.parts"),
    "a form: text alone": ("form", "three", None, "message.parts.data"),
    "a form: too much": ("form", "", {"size": 6}, "message.parts.data.size"),
    "a form: another type": ("form", "", {"size": "3"}, "message.parts.data.size"),
    "a form: a field missing": ("form", "", {}, "message.parts.data"),
    "a form: a field too many": ("form", "", {"size": 3, "color": "purple"}, "message.parts.data"),
    "a form: no object": ("form", "", [3], "message.parts.data"),
    "credentials: nothing": ("auth", "", None, "message.parts"),
}


@pytest.mark.parametrize(("kind", "text", "data", "field"), NO_ANSWERS.values(), ids=NO_ANSWERS)
@story
async def test_what_does_not_answer_the_question_is_refused_before_anything_changes(
    db: Database, kind: str, text: str, data: Any, field: str
) -> None:
    turn = await parked(db, question(kind))
    fault = await refused(db, turn, text, data=data)
    assert fault.kind == "invalid"
    assert str(fault.details["field"]).startswith(field)
    assert "purple" not in f"{fault.message} {fault.details}"
    await answered(db, turn, **FITTING.get(kind, {}))


@story
async def test_an_answer_that_says_for_which_question_it_is_must_be_for_the_open_one(db: Database) -> None:
    first, second = question(key="first"), question(key="second")
    turn = await parked(db, first)
    assert (await refused(db, turn, question=second.digest)).details["field"] == "message.metadata.question"
    await answered(db, turn, question=first.digest)
    turn = await parked(db, second, turn=await goes_on(db, turn))
    assert (await refused(db, turn, question=first.digest)).kind == "invalid"
    await answered(db, turn, "That one.", question=second.digest)
    kept = await db.read(checkpoints.of_task, turn.task.id)
    assert {name: Answer.of(kept[name]).text for name in kept} == {
        "answer:first": "This one.",
        "answer:second": "That one.",
    }


@story
async def test_the_same_answer_again_is_the_task_that_it_answered_and_no_second_answer(db: Database) -> None:
    """Also when its client sends it again after the task has asked something else."""
    turn = await parked(db)
    await heard_of(db)
    sent = message("This one.", task_id=turn.task.id)
    assert (await db.write(acceptance.accept, sent)).new
    turn = await parked(db, question("approval", key="sure"), turn=await goes_on(db, turn))
    before = everything(db.path)
    again = await db.write(acceptance.accept, sent)
    assert (again.task_id, again.new) == (turn.task.id, False)
    with pytest.raises(Fault, match="used for another message"):
        await db.write(acceptance.accept, replace(sent, text="approve", fingerprint="another"))
    assert everything(db.path) == before
    assert (await asked_of(db, turn)).key == "sure"


@story
async def test_a_second_answer_to_the_same_question_is_refused(db: Database) -> None:
    turn = await parked(db)
    digest = (await asked_of(db, turn)).digest
    await answered(db, turn)
    assert (await refused(db, turn, "No, that one.", question=digest)).details["field"] == "message.metadata.question"
    kept = await db.read(checkpoints.of_task, turn.task.id)
    assert Answer.of(kept["answer:which"]).text == "This one."


@story
async def test_of_answers_at_the_same_moment_one_is_taken(db: Database, clock: Clock) -> None:
    async with opened(db.path, clock) as other:
        for number in range(10):
            turn = await parked(db, session_id=f"s{number}")
            digest = (await asked_of(db, turn)).digest
            sent = [message(f"{place}", task_id=turn.task.id, question=digest) for place in range(4)]
            told = await asyncio.gather(
                *(home.write(acceptance.accept, one) for home, one in zip([db, other] * 2, sent, strict=True)),
                return_exceptions=True,
            )
            (taken,) = [place for place, answer in enumerate(told) if isinstance(answer, Accepted)]
            assert [type(answer) for place, answer in enumerate(told) if place != taken] == [Fault] * 3
            kept = await db.read(checkpoints.of_task, turn.task.id)
            assert Answer.of(kept["answer:which"]).text == str(taken)
            assert len(await db.read(messages.history, turn.task.id, None)) == 3
            assert await value(db, "select count(*) from runs where task_id = :id", id=turn.task.id) == 2


@story
async def test_without_a_worker_an_answer_is_not_taken(db: Database, clock: Clock) -> None:
    turn = await parked(db)
    clock.advance(3600)
    before = everything(db.path)
    with pytest.raises(Fault) as caught:
        await db.write(acceptance.accept, message("This one.", task_id=turn.task.id))
    assert (caught.value.kind, caught.value.reason) == ("unavailable", "WORKER_UNAVAILABLE")
    assert everything(db.path) == before


@every_kind
@story
async def test_another_s_question_does_not_exist(db: Database, kind: str) -> None:
    """The fault is that of a task that never was, whether the answer would fit or not."""
    turn = await parked(db, question(kind))
    digest = (await asked_of(db, turn)).digest
    told = [await refused(db, turn, owner="bob", **FITTING.get(kind, {}))]
    told.append(await refused(db, turn, "", owner="bob"))
    told.append(await refused(db, turn, owner="bob", question=digest))
    nowhere = Turn(replace(turn.task, id="never-was"), turn.run)
    told.append(await refused(db, nowhere))
    assert {(fault.kind, fault.message, str(fault.details)) for fault in told} == {
        ("not_found", "There is no such task.", "{}")
    }
    assert await db.read(journal.view, "bob", turn.task.id) is None
    assert await db.read(sessions.page, "bob", 10, None) == []
    assert await db.read(events.after, "bob", 0) == []


@story
async def test_a_question_outlives_the_process_that_asked_it(db: Database, clock: Clock) -> None:
    turn = await parked(db, question("form"))
    await db.close()
    async with opened(db.path, clock) as again:
        assert (await asked_of(again, turn)).schema == FORM
        await answered(again, turn, data={"size": 1})
        assert (await goes_on(again, turn)).task.state == "working"


@story
async def test_where_only_what_is_masked_is_kept_question_and_answer_are_masked(db: Database) -> None:
    address = "ada@example.org"
    asks = question("form", text=f"Write to {address}?", detail=f"cc {address}", schema={"type": "object"})
    turn = await parked(db, asks, ceiling="redacted")
    shown = await asked_of(db, turn)
    assert (shown.text, shown.detail) == ("Write to ***?", "cc ***")
    await answered(db, turn, f"{address}, please", data={"to": address}, question=shown.digest)
    kept = await db.read(checkpoints.of_task, turn.task.id)
    assert Answer.of(kept["answer:which"]) == Answer("***, please", {"to": "***"})
    assert address not in str(await db.read(messages.history, turn.task.id, None))
    assert address not in str(await log_of(db, turn.task.session, 10, None))
