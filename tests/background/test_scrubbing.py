"""A task's level is lowered: every copy of the inventory is brought down in that very commit, whatever state it is in."""

import json
from dataclasses import replace
from typing import Any

import pytest

from agent.tightening import AT_ONCE, bring_down
from background import (
    checkpoints,
    job_rows,
    jobs,
    masked,
    messages,
    questions,
    queue,
    results,
    retention,
    scrubbing,
    sessions,
    tasks,
    terminal,
)
from background.ceilings import LEVELS
from background.database import Database, Tx
from background.errors import Fault, LeaseLost
from background.jobs import Spec
from background.questions import Question
from background.sealing import SEALED
from background.tasks import Task
from tests.background.factories import (
    OWNER,
    Turn,
    at_work,
    begun,
    brought_to_end,
    chat,
    dispatched,
    ended,
    ended_job,
    message,
    outcome,
    running,
    sent_by_api,
    settled,
    submitted,
)
from tests.background.story import rows, story

SECRET = "ada@example.com"
SAID = f"write to {SECRET}"
KEPT = {"full": SAID, "redacted": "write to ***"}


async def lowered(db: Database, task: Task, level: str) -> Task:
    await db.write(terminal.tighten, task.id, level)
    return await db.read(tasks.by_id, task.id)


async def texts(db: Database) -> str:
    """All that is sealed in the registry, opened."""

    def opened(tx: Tx) -> str:
        found = []
        for table, (names, columns) in SEALED.items():
            for row in tx.q(f"select * from {table}"):
                place = "/".join(str(row[name]) for name in names)
                cells = [(column, row[column]) for column in columns if row[column] is not None]
                found += [f"{table}.{column}: {tx.unseal(f'{table}.{column}', place, cell)}" for column, cell in cells]
        return "\n".join(found)

    return await db.read(opened)


async def sends_out(db: Database, turn: Turn, prompt: str = SAID) -> job_rows.Job:
    """A step of the turn sends a job out."""

    def spawn(tx: Tx) -> job_rows.Job:
        session = sessions.by_uid(tx, turn.task.session)
        keyed = [(f"step:{turn.task.id}:1:call:0", Spec(prompt, prompt, "general", ()))]
        (job,) = jobs.spawn(tx, session, turn.task.id, keyed, closed=False, level=turn.task.ceiling)
        return job

    return await db.write(spawn)


def test_f051_each_kind_of_copy_stands_in_the_one_inventory_that_lowering_walks() -> None:
    """A column that is sealed tomorrow fails this until it is said which of its rows are a task's."""
    assert set(SEALED) == {*scrubbing.OF_TASK, *scrubbing.OTHERWISE}
    assert not {*scrubbing.OF_TASK} & {*scrubbing.OTHERWISE}


@pytest.mark.parametrize("level", LEVELS)
@story
async def test_f046_a_tightening_after_the_end_brings_down_all_that_was_kept(db: Database, level: str) -> None:
    turn = await running(db, SAID)
    await db.write(tasks.checkpoint, turn.run, "model:1", f'["{SAID}"]')
    assert await settled(db, turn, text=SAID, transcript=f'["{SAID}"]')
    before = await db.read(tasks.by_id, turn.task.id)
    after = await lowered(db, turn.task, level)
    kept = await db.read(results.read, turn.task.id)
    assert (after.state, after.revision, after.ceiling) == (before.state, before.revision, level)
    assert kept is not None and kept.text == KEPT.get(level, "")
    assert (SECRET in await texts(db)) == (level == "full")
    assert ("write to" in await texts(db)) == (level in KEPT)


@pytest.mark.parametrize("level", ["redacted", "metadata", "none"])
@story
async def test_f046_what_settles_after_a_tightening_is_kept_at_its_level(db: Database, level: str) -> None:
    """The level is read in the transaction that ends the task, whatever the turn had been told when it began."""
    turn = await running(db, SAID)
    await db.write(terminal.tighten, turn.task.id, level)
    assert await settled(db, turn, text=SAID) == (level == "redacted")
    task = await db.read(tasks.by_id, turn.task.id)
    assert task.state == ("completed" if level == "redacted" else "failed")
    assert SECRET not in await texts(db)


@story
async def test_f045_a_task_whose_level_sinks_too_low_has_failed_in_the_same_commit(db: Database) -> None:
    turn = await running(db, SAID)
    assert await db.write(terminal.lower, turn.run, "metadata") == "metadata"
    end = (await db.read(tasks.ends, [turn.task.id]))[turn.task.id]
    assert (end.state, end.reason, end.detail) == ("failed", "RESULT_NOT_KEPT", terminal.NOT_KEPT)
    with pytest.raises(LeaseLost):
        await db.write(tasks.checkpoint, turn.run, "model:1", SAID)
    assert SECRET not in await texts(db)


@story
async def test_f042_lowering_is_for_whoever_holds_the_run(db: Database) -> None:
    turn = await running(db)
    with pytest.raises(LeaseLost):
        await db.write(terminal.lower, replace(turn.run, attempt=turn.run.attempt + 1), "none")
    assert (await db.read(tasks.by_id, turn.task.id)).ceiling == "full"


@story
async def test_f042_nothing_raises_a_level_again(db: Database) -> None:
    task = await ended(db)
    for level in ("redacted", "full", "metadata", "redacted", "none", "full"):
        await lowered(db, task, level)
    assert (await db.read(tasks.by_id, task.id)).ceiling == "none"


@story
async def test_what_is_kept_from_then_on_is_masked_as_it_is_written(db: Database) -> None:
    turn = await running(db)
    await lowered(db, turn.task, "redacted")
    assert await db.write(tasks.checkpoint, turn.run, "model:1", f'[{{"text": "{SAID}", "n": 1}}]') == "redacted"
    await db.write(queue.release, turn.run, due_at=None)
    assert (await db.read(checkpoints.of_task, turn.task.id))["model:1"] == '[{"text": "write to ***", "n": 1}]'


@story
async def test_a_call_out_of_which_an_erased_report_is_taken_is_marked_and_the_one_beside_it_is_not(
    db: Database,
) -> None:
    """What is left of it must not be made as the model's own, when the turn begins anew."""
    job = await ended_job(db, text="The report.")
    turn = await running(db)
    said = [("c-1", "tell The report. to all"), ("c-2", "tell nothing")]
    calls = [{"part_kind": "tool-call", "tool_name": "tell", "tool_call_id": id, "args": {"t": t}} for id, t in said]
    await db.write(tasks.checkpoint, turn.run, "model:1", json.dumps([{"kind": "response", "parts": calls}]))
    assert await db.read(masked.kept_of, turn.task.id, 1) == frozenset()
    await db.write(retention.erase_report, OWNER, job.id, lambda text: text.replace("The report.", "(gone)"))
    assert await db.read(masked.kept_of, turn.task.id, 1) == {0}
    kept = (await db.read(checkpoints.of_task, turn.task.id))["model:1"]
    assert "tell (gone) to all" in kept and "The report." not in kept


@pytest.mark.parametrize("level", ["redacted", "metadata"])
@story
async def test_a_task_that_has_not_begun_and_one_that_is_parked_are_lowered_too(db: Database, level: str) -> None:
    waiting = await submitted(db, SAID)
    turn = await begun(db, await submitted(db, SAID, session_id="other"))
    await db.write(terminal.park, turn.run, Question("question", "k", SAID))
    for task in (waiting, turn.task):
        await lowered(db, task, level)
    states = [(await db.read(tasks.by_id, task.id)).state for task in (waiting, turn.task)]
    assert states == (["submitted", "input_required"] if level == "redacted" else ["failed", "failed"])
    asked = await db.read(questions.current, turn.task.id)
    assert (asked.text if asked else None) == KEPT.get(level)
    assert SECRET not in await texts(db)


@pytest.mark.parametrize("level", ["redacted", "metadata"])
@story
async def test_the_jobs_that_a_turn_sent_out_sink_with_it(db: Database, level: str) -> None:
    """Their prompts are its words: one that waits, and one that is at work."""
    turn = await running(db, SAID)
    job = await sends_out(db, turn)
    out = await at_work(db, job)
    await lowered(db, turn.task, level)
    job, task = await db.read(job_rows.by_id, job.id), await db.read(tasks.by_id, out.turn.task.id)
    assert task.ceiling == level
    assert (job.status, job.prompt) == (("running", "write to ***") if level == "redacted" else ("failed", ""))
    assert SECRET not in await texts(db)


@story
async def test_a_job_that_was_not_dispatched_yet_fails_and_is_not_dispatched_any_more(db: Database) -> None:
    turn = await running(db)
    job = await sends_out(db, turn)
    await lowered(db, turn.task, "none")
    job = await db.read(job_rows.by_id, job.id)
    assert (job.status, job.reason, job.description) == ("failed", "RESULT_NOT_KEPT", "")
    assert await rows(db, "select 1 from runs where kind = 'dispatch' and ended_at is null") == []
    assert SECRET not in await texts(db)


@pytest.mark.parametrize("level", ["redacted", "metadata"])
@story
async def test_a_programs_job_keeps_of_its_prompt_what_its_task_may(db: Database, level: str) -> None:
    (job,) = await sent_by_api(db, SAID)
    job = await brought_to_end(db, job, text=SAID)
    await db.write(terminal.tighten, job.task_id or "", level)
    job = await db.read(job_rows.by_id, job.id)
    assert job.description == KEPT.get(level, "") and job.excerpt == KEPT.get(level, "")
    assert SECRET not in await texts(db)
    assert await rows(db, "select 1 from runs where kind = 'tighten'") == [{"1": 1}]


@pytest.mark.parametrize("level", LEVELS)
@story
async def test_f046_a_start_brings_down_ended_tasks_and_what_is_not_begun_yet(db: Database, level: str) -> None:
    """More of them than one transaction takes."""
    for number in range(AT_ONCE + 1):
        await running_in(db, f"s{number}")
    (job,) = await sent_by_api(db, SAID, session=await chat(db, "programs"))
    await bring_down(db, {"chat": level, None: "none"})
    assert (SECRET in await texts(db)) == (level == "full")
    status = (await db.read(job_rows.by_id, job.id)).status
    assert status == ("queued" if level in KEPT else "failed")


async def running_in(db: Database, session: str) -> None:
    turn = await running(db, SAID, session_id=session)
    assert await settled(db, turn, text=SAID)


@story
async def test_a_job_of_which_nothing_is_kept_cannot_be_retried(db: Database) -> None:
    (job,) = await sent_by_api(db, SAID)
    job = await brought_to_end(db, job)
    await db.write(terminal.tighten, job.task_id or "", "none")
    with pytest.raises(Fault, match="not kept any more"):
        await db.write(jobs.retry, OWNER, job.id)


@story
async def test_a_title_goes_with_the_words_that_it_was_made_of_and_with_no_others(db: Database) -> None:
    turns = []
    for said in ("first words", "second words"):
        turns.append(await running(db, said))
        assert await settled(db, turns[-1])
    titles = []
    for turn in reversed(turns):
        await lowered(db, turn.task, "none")
        session = await db.read(sessions.by_uid, turn.task.session)
        titles.append((await db.read(sessions.with_running, session)).title)
    assert titles == ["first words", ""]


@pytest.mark.parametrize("level", ["metadata", "none"])
@story
async def test_f044_nothing_is_sent_out_where_no_report_could_be_kept(db: Database, level: str) -> None:
    turn = await running(db)

    def spawn(tx: Tx) -> Any:
        session = sessions.by_uid(tx, turn.task.session)
        return jobs.spawn(tx, session, "b", [("k", Spec("d", "p", "general", ()))], closed=True, level=level)

    with pytest.raises(Fault) as refused:
        await db.write(spawn)
    assert refused.value.reason == "RESULT_NOT_STORABLE"
    assert await rows(db, "select 1 from jobs union all select 1 from batches") == []


@story
async def test_an_excerpt_is_cut_out_of_what_was_masked(db: Database) -> None:
    """A cut through a secret leaves a piece of it that no mask knows."""
    (job,) = await sent_by_api(db)
    turn = await begun(db, await dispatched(db, job))
    await lowered(db, turn.task, "redacted")
    text = f"{'x' * 20} {SECRET} and more"
    short = replace(outcome(text=text), excerpt=text[:25], shorten=lambda whole: whole[:25])
    assert await db.write(terminal.settle, turn.run, short)
    assert (await db.read(job_rows.by_id, job.id)).excerpt == f"{'x' * 20} *** "


@story
async def test_at_acceptance_a_message_is_masked_and_its_title_with_it(db: Database) -> None:
    sent = message(SAID, ceiling="redacted")
    task = await submitted(db, SAID, ceiling="redacted")
    assert sent.text == SAID and await db.read(messages.history, task.id, None) != []
    assert SECRET not in await texts(db)
