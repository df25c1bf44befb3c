"""Accepting: a message is taken whole and once, or refused with nothing stored."""

import asyncio

import pytest

from background import journal, messages, sessions, tasks, terminal
from background.acceptance import Accepted
from background.database import Database, Tx
from background.errors import Fault
from background.limits import SECOND
from tests.background.accepting import accept, refused
from tests.background.factories import (
    OWNER,
    begun,
    dispatched,
    ended,
    heard_of,
    message,
    running,
    sent_by_api,
    settled,
    submitted,
)
from tests.background.story import everything, log_of, opened, rows, story, value, within
from tests.support.clock import Clock

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
    assert counts == {"migrations": counts["migrations"], "seals": 1, "workers": 1, **dict.fromkeys(made, 1)}
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
    log = await log_of(db, first.session, 10, None)
    assert [(said.kind, said.text) for said in log] == [("user", "one"), ("user", "two")]


@story
async def test_a_task_has_its_own_messages_alone_as_its_history(db: Database) -> None:
    """A12: nothing of the context's earlier tasks."""
    await ended(db)
    task = await submitted(db, "two")
    history = await db.read(messages.history, task.id, None)
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


@pytest.mark.parametrize("state", ["completed", "failed", "canceled"])
@story
async def test_a_message_to_a_task_that_has_ended_is_refused_in_words_that_say_so(db: Database, state: str) -> None:
    """A28"""
    task = await ended(db, state)
    fault = await refused(db, message(task_id=task.id))
    assert (fault.kind, fault.details["task"]) == ("refused", task.id)
    assert "has ended" in fault.message


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
