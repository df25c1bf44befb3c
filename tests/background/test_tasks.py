"""How a task begins: accepted whole or refused with nothing stored, begun once, and kept step by step."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from background import journal, queue, sessions, tasks, terminal
from background.database import Database, Tx
from background.errors import Fault, LeaseLost
from background.limits import SECOND
from background.tasks import Accepted, Incoming, Usage
from tests.background.factories import (
    OWNER,
    begun,
    dispatched,
    ended,
    heard_of,
    message,
    outcome,
    running,
    sent_by_api,
    settled,
    submitted,
)
from tests.background.story import everything, opened, rows, story, value, within
from tests.support.clock import Clock


async def accept(db: Database, sent: Incoming) -> Accepted:
    return await db.write(tasks.accept, sent)


async def refused(db: Database, sent: Incoming) -> Fault:
    """The fault with which a message is refused; nothing of it is stored."""
    before = everything(db.path)
    with pytest.raises(Fault) as caught:
        await db.write(tasks.accept, sent)
    assert everything(db.path) == before
    return caught.value


# -- accepted


@story
async def test_what_a_message_makes_stands_in_one_commit(db: Database, clock: Clock) -> None:
    await heard_of(db)
    sent = message("Hello there", profile="chat")
    accepted = await accept(db, sent)
    assert accepted.new
    stored = everything(db.path)
    counts = {name: len(found) for name, found in stored.items() if found and not name.startswith("sqlite")}
    made = ("sessions", "tasks", "receipts", "revisions", "views", "journal", "messages", "runs")
    assert counts == {"migrations": counts["migrations"], "workers": 1, **dict.fromkeys(made, 1)}
    task = await db.read(tasks.by_id, accepted.task_id)
    assert (task.state, task.origin, task.owner, task.created_at) == ("submitted", "user", OWNER, clock())


@story
async def test_a_task_can_be_seen_from_the_moment_that_it_is_accepted(db: Database) -> None:
    task = await submitted(db)
    view = await db.read(journal.view, OWNER, task.id)
    assert view is not None
    assert (view.state, view.revision) == ("submitted", 1)


@story
async def test_messages_of_a_session_make_tasks_that_wait_for_each_other(db: Database) -> None:
    first, second = await submitted(db, "one"), await submitted(db, "two")
    assert first.session == second.session
    states = [row["state"] for row in await rows(db, "select state from runs order by id")]
    assert states == ["queued", "waiting"]
    log = await db.read(sessions.messages, first.session, 10, None)
    assert [(row["kind"], row["text"]) for row in log] == [("user", "one"), ("user", "two")]


@story
async def test_a_task_has_its_own_messages_alone_as_its_history(db: Database) -> None:
    """A12: nothing of the context's earlier tasks."""
    await ended(db)
    task = await submitted(db, "two")
    history = await db.read(sessions.history, task.id, None)
    assert [part["parts"][0]["text"] for part in history] == ["two"]


# -- once


@story
async def test_the_same_message_again_is_the_task_that_it_made(db: Database) -> None:
    """A24: while it waits, works, and when it has ended; even with no worker, and with no room."""
    await heard_of(db)
    sent = message()
    first = await accept(db, sent)
    turn = await begun(db, await db.read(tasks.by_id, first.task_id))
    again = [await accept(db, sent)]
    await settled(db, turn)
    again.append(await accept(db, sent))
    await db.write(Tx.x, "delete from workers")
    again.append(await accept(db, sent))
    assert again == [Accepted(first.task_id, new=False)] * 3
    assert await value(db, "select count(*) from tasks") == 1


@story
async def test_twenty_at_once_of_one_message_are_one_task(db: Database, clock: Clock) -> None:
    await heard_of(db)
    sent = message()
    async with opened(db.path, clock) as other:
        accepted = await asyncio.gather(*(accept(here, sent) for here in [db, other] * 10))
    assert len({one.task_id for one in accepted}) == 1
    assert [one.new for one in accepted].count(True) == 1
    assert await value(db, "select count(*) from runs") == 1


@story
async def test_a_message_id_that_comes_with_other_content_is_refused(db: Database) -> None:
    await submitted(db, "one", message_id="m")
    fault = await refused(db, message("another", message_id="m"))
    assert (fault.kind, fault.reason) == ("invalid", "MESSAGE_ID_REUSED")


@story
async def test_another_owner_s_message_of_the_same_id_is_another_message(db: Database) -> None:
    mine = await submitted(db, message_id="m")
    theirs = await submitted(db, message_id="m", owner="bob")
    assert mine.id != theirs.id
    assert mine.session != theirs.session


# -- refused


@pytest.mark.parametrize(("silent_s", "live"), [(0, True), (119, True), (120, True), (121, False)])
@within(worker_ttl=120 * SECOND)
async def test_without_a_worker_heard_from_lately_nothing_is_taken(
    db: Database, clock: Clock, silent_s: int, live: bool
) -> None:
    """A34."""
    await heard_of(db)
    clock.advance(silent_s)
    if live:
        assert (await accept(db, message())).new
    else:
        fault = await refused(db, message())
        assert (fault.kind, fault.reason) == ("unavailable", "WORKER_UNAVAILABLE")
        await heard_of(db)
        assert (await accept(db, message())).new


@story
async def test_where_no_worker_ever_was_nothing_is_taken(db: Database) -> None:
    assert (await refused(db, message())).reason == "WORKER_UNAVAILABLE"


@within(worker_ttl=120 * SECOND)
async def test_a_worker_that_only_swept_lately_is_live(db: Database, clock: Clock) -> None:
    await heard_of(db)
    clock.advance(119)
    await db.write(Tx.x, "update workers set swept_at = :now", now=clock())
    clock.advance(119)
    assert (await accept(db, message())).new


@within(max_open_tasks=5)
async def test_the_limit_of_open_tasks_is_exact_however_many_come_at_once(db: Database, clock: Clock) -> None:
    await heard_of(db)
    async with opened(db.path, clock, max_open_tasks=5) as other:
        asked = [accept(here, message(session_id=f"s{n}")) for n, here in enumerate([db, other] * 10)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
    faults = [answer for answer in answers if isinstance(answer, Fault)]
    assert len(answers) - len(faults) == 5 == await value(db, "select count(*) from tasks")
    assert {fault.reason for fault in faults} == {"OPEN_TASKS_LIMIT_REACHED"}
    assert {fault.details["limit"] for fault in faults} == {"OUTRIDER_MAX_OPEN_TASKS_PER_USER"}


@within(max_open_tasks=2)
async def test_the_limit_of_open_tasks_is_an_owner_s_own_and_falls_free_with_each_end(db: Database) -> None:
    turn = await running(db, session_id="a")
    await submitted(db, session_id="b")
    assert (await refused(db, message())).reason == "OPEN_TASKS_LIMIT_REACHED"
    await submitted(db, owner="bob")
    await settled(db, turn)
    await submitted(db, session_id="c")


@within(max_open_tasks=1)
async def test_what_outrider_posts_to_itself_never_counts_and_is_never_refused_for_it(db: Database) -> None:
    (job,) = await sent_by_api(db)
    await submitted(db)
    await dispatched(db, job)
    assert (await accept(db, message(origin="background-resume", cause=job.id))).new
    fault = await refused(db, message())
    assert fault.reason == "OPEN_TASKS_LIMIT_REACHED"
    assert "1 unfinished" in fault.message


@pytest.mark.parametrize(
    ("state", "told"), [("running", "takes no further message"), ("completed", "ended"), ("canceled", "ended")]
)
@story
async def test_a_message_to_a_task_is_refused_in_words_that_say_what_is_the_matter(
    db: Database, state: str, told: str
) -> None:
    task = (await running(db)).task if state == "running" else await ended(db, state)
    fault = await refused(db, message(task_id=task.id))
    assert (fault.kind, fault.details["task"]) == ("refused", task.id)
    assert told in fault.message


@pytest.mark.parametrize("owner", [OWNER, "bob"])
@story
async def test_a_message_to_a_task_that_is_not_there_or_another_s_is_told_the_same(db: Database, owner: str) -> None:
    """A26: and no task is made by it."""
    theirs = await submitted(db, owner="alice")
    wanted = theirs.id if owner == "bob" else "nope"
    fault = await refused(db, message(task_id=wanted, owner=owner))
    assert (fault.kind, fault.message) == ("not_found", "There is no such task.")


@story
async def test_a_chat_message_into_a_job_s_own_session_is_refused(db: Database) -> None:
    (job,) = await sent_by_api(db)
    task = await dispatched(db, job)
    window = await db.read(sessions.by_uid, task.session)
    assert (await refused(db, message(session_id=window.id))).kind == "invalid"


@story
async def test_a_job_s_post_that_comes_late_or_twice_makes_no_second_task(db: Database) -> None:
    """S42: the post was taken and its answer lost; or the job was canceled meanwhile."""
    (job,) = await sent_by_api(db)
    await dispatched(db, job)
    late = message(origin="background", cause=job.id, session_id=f"background:{job.id}")
    assert (await refused(db, late)).kind == "conflict"
    (other,) = await sent_by_api(db)
    await db.write(terminal.cancel_job, other, "user")
    assert (await refused(db, message(origin="background", cause=other.id, session_id="b"))).kind == "conflict"


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
    assert await db.read(tasks.checkpoints, turn.task.id) == {}


@story
async def test_a_step_is_kept_as_it_was_first(db: Database, clock: Clock) -> None:
    turn = await running(db)
    await db.write(tasks.checkpoint, turn.run, "input", '["hello"]')
    clock.advance(1)
    await db.write(tasks.checkpoint, turn.run, "model:1", "first", Usage(1, 10, 5, 2))
    await db.write(tasks.checkpoint, turn.run, "model:1", "second")
    kept = await db.read(tasks.checkpoints, turn.task.id)
    assert kept == {"input": '["hello"]', "model:1": "first"}
    assert list(kept) == ["input", "model:1"]
    usage = await rows(db, "select requests, input_tokens, output_tokens, tool_calls from tasks")
    assert usage == [{"requests": 1, "input_tokens": 10, "output_tokens": 5, "tool_calls": 2}]


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
        kept[state] = await db.read(tasks.checkpoints, turn.task.id)
    assert kept == {"completed": {"transcript": "[]"}, "failed": {"tool:1:c": "content of tool:1:c"}}


# -- what later turns and others look up


@story
async def test_past_turns_are_the_session_s_own_ended_ones_oldest_first(db: Database, clock: Clock) -> None:
    for text, state in (("one", "completed"), ("two", "failed"), ("three", "canceled")):
        clock.advance(1)
        await settled(db, await running(db, text), state)
    await ended(db, session_id="another")
    now = await running(db, "now")
    past = await db.read(tasks.past_turns, now.task.session, now.task.id, 10)
    told = [(row["text"], row["state"], row["transcript"]) for row in past]
    assert told == [("one", "completed", "[]"), ("two", "failed", None), ("three", "canceled", None)]
    assert [row["text"] for row in await db.read(tasks.past_turns, now.task.session, now.task.id, 2)] == [
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
