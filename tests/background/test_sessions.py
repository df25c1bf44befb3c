"""Sessions and their log: an owner's own, made by their first message, and a log that says who said what."""

import pytest

from background import messages, results, sessions, tasks, terminal
from background.database import Database
from background.errors import Fault
from tests.background.factories import (
    OWNER,
    briefing,
    chat,
    dispatched,
    ended,
    ended_job,
    nudged,
    nudges,
    running,
    sent_by_api,
    settled,
    submitted,
)
from tests.background.story import log_of, story
from tests.support.clock import Clock


@story
async def test_a_session_is_an_owner_and_an_id(db: Database) -> None:
    """A33: another's session of the same id is another session, and shows nothing."""
    mine, theirs = await chat(db, "s"), await chat(db, "s", owner="bob")
    assert mine.uid != theirs.uid
    assert await chat(db, "s") == mine
    assert await db.read(sessions.find, "carol", "s") is None
    with pytest.raises(Fault, match="There is no such session"):
        await db.read(sessions.get, "carol", "s")


@story
async def test_the_kind_is_a_column_and_not_read_out_of_an_id(db: Database) -> None:
    odd = await chat(db, "background:looks-like-one")
    assert odd.kind == "chat"
    (job,) = await sent_by_api(db)
    task = await dispatched(db, job)
    assert (await db.read(sessions.by_uid, task.session)).kind == "background"


@story
async def test_the_list_holds_chats_alone_the_latest_first_with_what_runs_in_them(db: Database, clock: Clock) -> None:
    """S74: a job's own session is a window for looking into it, not a conversation."""
    for name in ("old", "new", "newest"):
        clock.advance(1)
        await submitted(db, f"about {name}", session_id=name)
    clock.advance(1)
    await submitted(db, "more", session_id="new")
    await ended_job(db)
    found = await db.read(sessions.page, OWNER, 10, None)
    listed = [(one.session.id, one.running) for one in found if one.session.id != "s"]
    assert listed == [("new", 2), ("newest", 1), ("old", 1)]
    assert {one.session.kind for one in found} == {"chat"}
    assert await db.read(sessions.page, "bob", 10, None) == []


@story
async def test_pages_of_sessions_follow_each_other_without_a_gap_or_a_double(db: Database, clock: Clock) -> None:
    for number in range(7):
        await submitted(db, session_id=f"s{number}")
        clock.advance(number % 2)
    seen: list[str] = []
    before = None
    while page := await db.read(sessions.page, OWNER, 3, before):
        seen += [one.session.id for one in page]
        before = (page[-1].session.updated_at, page[-1].session.uid)
    assert sorted(seen) == [f"s{number}" for number in range(7)]


@story
async def test_the_first_words_make_the_title_and_it_stays(db: Database) -> None:
    await submitted(db, "  What about\n\nthe   " + "long " * 40)
    await submitted(db, "And now?")
    title = await titled(db)
    assert title.startswith("What about the long long")
    assert len(title) <= sessions.TITLE_CHARS


async def titled(db: Database) -> str:
    """The title of the session `s`."""
    session = await db.read(sessions.get, OWNER, "s")
    return (await db.read(sessions.with_running, session)).title


@story
async def test_a_turn_that_outrider_began_is_counted_until_the_user_speaks_again(db: Database) -> None:
    """S79."""
    await submitted(db)
    session = await db.read(sessions.get, OWNER, "s")
    for _ in range(3):
        await db.write(sessions.began_unattended, session.uid)
    assert (await db.read(sessions.get, OWNER, "s")).unattended == 3
    await ended_job(db)
    await nudged(db, (await nudges(db))[0])
    assert (await db.read(sessions.get, OWNER, "s")).unattended == 3
    await submitted(db, "I am back")
    assert (await db.read(sessions.get, OWNER, "s")).unattended == 0


@story
async def test_the_log_says_who_spoke_and_never_takes_a_notification_or_a_nudge_for_the_user(db: Database) -> None:
    """S75."""
    await ended(db, text="The answer.")
    session = await db.read(sessions.get, OWNER, "s")
    await ended_job(db)
    turn, told = await briefing(db, (await nudges(db))[0])
    await db.write(messages.log, session.uid, "notification", "…", task_id=turn.task.id, job_ids=tuple(told))
    await settled(db, turn, text="The briefing.")
    await db.write(messages.log, session.uid, "notice", "I begin no more.")
    log = await log_of(db, session.uid, 10, None)
    assert [(said.role, said.kind) for said in log] == [
        ("user", "user"),
        ("agent", "agent"),
        ("user", "nudge"),
        ("user", "notification"),
        ("agent", "agent"),
        ("agent", "notice"),
    ]
    assert await titled(db) == "hello"


@story
async def test_an_answer_s_text_is_read_from_its_result_and_stands_nowhere_else(db: Database) -> None:
    task = await ended(db, text="The answer.")
    log = await log_of(db, task.session, 10, None)
    assert [(said.text, said.task_id) for said in log] == [("hello", task.id), ("", task.id)]
    assert [said.kind for said in log] == ["user", "agent"]
    result = await db.read(results.read, task.id)
    assert result is not None
    assert result.text == "The answer."


@story
async def test_the_log_is_paged_from_its_end_backwards(db: Database) -> None:
    for number in range(5):
        await submitted(db, f"{number}")
    uid = (await db.read(sessions.get, OWNER, "s")).uid
    last = await log_of(db, uid, 2, None)
    assert [said.text for said in last] == ["3", "4"]
    assert [said.text for said in await log_of(db, uid, 2, last[0].id)] == ["1", "2"]


@story
async def test_a_task_s_history_is_what_its_client_sent_the_last_of_it_where_that_is_asked_for(db: Database) -> None:
    turn = await running(db, "one")
    uid = turn.task.session
    await db.write(messages.log, uid, "user", "two", task_id=turn.task.id, content={"messageId": "m2"})
    await db.write(messages.log, uid, "notification", "a block", task_id=turn.task.id)
    history = await db.read(messages.history, turn.task.id, None)
    assert [message.get("messageId") == "m2" for message in history] == [False, True]
    assert await db.read(messages.history, turn.task.id, 1) == [{"messageId": "m2"}]
    assert await db.read(messages.history, turn.task.id, 0) == []
    text, opening = await db.read(messages.opening, turn.task.id)
    assert (text, opening) == ("one", history[0])
    assert await db.read(messages.opening, "unknown") == ("", {})


@story
async def test_a_notice_is_known_to_stand_there_since_the_user_last_spoke(db: Database) -> None:
    await submitted(db)
    uid = (await db.read(sessions.get, OWNER, "s")).uid
    told = []
    for text in ("", "I begin no more.", "again"):
        if text == "again":
            await submitted(db, "I am back")
        elif text:
            await db.write(messages.log, uid, "notice", text)
        told.append(await db.read(messages.noted_since_user, uid, "I begin no more."))
    assert told == [False, True, False]


@story
async def test_a_canceled_turn_stands_in_the_log_as_one(db: Database) -> None:
    turn = await running(db)
    await db.write(terminal.cancel_task, turn.task, "user")
    (_, last) = await log_of(db, turn.task.session, 10, None)
    assert (last.kind, last.task_id, last.text) == ("agent", turn.task.id, "")
    end = (await db.read(tasks.ends, [turn.task.id]))[turn.task.id]
    assert (end.state, end.detail) == ("canceled", "Canceled by its user.")
    result = await db.read(results.read, turn.task.id)
    assert result is not None
    assert (result.artifacts, result.partial) == ([], None)
