"""From version 1, which kept plain text, to what seals: every row keeps its meaning, and no byte of the text stays behind."""

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from background import (
    acceptance,
    batches,
    checkpoints,
    database,
    delivery,
    events,
    job_rows,
    journal,
    messages,
    migrating,
    queue,
    results,
    sealing,
    sessions,
    tasks,
    worker,
)
from background.database import Database, Tx
from background.errors import StorageUnavailable
from background.sealing import SEALED
from background.tasks import End
from tests.background import ancient
from tests.background.ancient import ARTIFACTS, AT, SAID, SENT, TOLD, WAS_SAID_BEFORE, left_behind
from tests.background.factories import OWNER, begun, heard_of, message, settled
from tests.background.story import everything, log_of, opened, rows, value
from tests.support.clock import Clock

ROOT = Path(__file__).parents[2]
NEWEST = len(list(migrating.MIGRATIONS.glob("*.sql")))  # the version that an old file is brought to
PLAIN = [word.encode() for word in (SAID, WAS_SAID_BEFORE)]
Upgraded = Callable[[Callable[[Database], Awaitable[None]]], None]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A registry of version 1, left behind by a kill."""
    return left_behind(tmp_path)


@pytest.fixture
def upgraded(old: Path, clock: Clock) -> Upgraded:
    """Runs a story over the old registry, opened by this version."""

    def run(story: Callable[[Database], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with _opened(old, clock) as db:
                await story(db)

        asyncio.run(asyncio.wait_for(whole(), 30))

    return run


@asynccontextmanager
async def _opened(path: Path, clock: Clock) -> AsyncIterator[Database]:
    async with opened(path, clock) as db:
        yield db


def plain_in(path: Path) -> dict[str, list[bytes]]:
    """By file of a registry, which plain words stand in it."""
    files = {file.name: file.read_bytes() for file in path.parent.glob(f"{path.name}*")}
    return {name: [word for word in PLAIN if word in content] for name, content in files.items()}


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as stranger:
        return stranger.execute("select max(number) from migrations").fetchone()[0]


# -- what was there


def test_the_old_registry_has_something_in_every_table_and_every_cell(old: Path) -> None:
    """Otherwise the promises below would show nothing."""
    assert plain_in(old) == {"registry.db": PLAIN, "registry.db-wal": PLAIN[:1]}
    stored = everything(old)
    assert [table for table, found in stored.items() if not found] == []
    with closing(sqlite3.connect(old)) as stranger:
        for table in SEALED.keys() & stored.keys():
            named = {column for (_, column, *_) in stranger.execute(f"pragma table_info({table})")}
            for column in named & set(SEALED[table].columns):
                said = stranger.execute(f"select 1 from {table} where {column} like ?", [f"%{SAID}%"]).fetchall()
                assert said, (table, column)


# -- its meaning


def test_sessions_and_their_logs_say_what_they_said(upgraded: Upgraded) -> None:
    async def story(db: Database) -> None:
        listed = {one.session.id: one for one in await db.read(sessions.page, OWNER, 10, None)}
        assert {name: (one.title, one.running) for name, one in listed.items()} == {
            "s": (f"{SAID}?", 2),
            "silent": ("", 0),
        }
        assert listed["s"].session.unattended == 2
        log = await log_of(db, "chat", 10, None)
        assert [(said.id, said.kind, said.text, said.task_id, said.job_ids) for said in log] == [
            (1, "user", f"{SAID}?", "done", ()),
            (2, "agent", "", "done", ()),
            (3, "notification", f"{SAID} has ended", "done", ("bg-done",)),
            (4, "user", f"{SAID}!", "work", ()),
        ]
        assert await db.read(messages.history, "done", None) == [SENT]
        assert await db.read(messages.opening, "done") == (f"{SAID}?", SENT)
        assert await db.read(messages.notified_chars, "done") == len(f"{SAID} has ended")

    upgraded(story)


def test_a_session_that_has_no_title_still_gets_one_from_its_first_words(upgraded: Upgraded) -> None:
    async def story(db: Database) -> None:
        await heard_of(db)
        await db.write(acceptance.accept, message("At last", session_id="silent"))
        silent = await db.read(sessions.get, OWNER, "silent")
        assert (await db.read(sessions.with_running, silent)).title == "At last"

    upgraded(story)


def test_tasks_are_what_they_were(upgraded: Upgraded) -> None:
    async def story(db: Database) -> None:
        assert await db.read(tasks.ends, ["done", "broken", "work", "wait"]) == {
            "done": End("completed", None, None, AT + 9),
            "broken": End("failed", "MODEL_FAILED", f"{SAID} broke it", AT + 9),
            "work": End("working", None, None, None),
            "wait": End("submitted", None, None, None),
        }
        done, broken = await db.read(results.read, "done"), await db.read(results.read, "broken")
        assert done == results.Result(ARTIFACTS)
        assert broken == results.Result([], f"{SAID} so f")
        assert {task.ceiling for task in [await db.read(tasks.by_id, name) for name in ("done", "work")]} == {"full"}
        assert await db.read(checkpoints.of_task, "work") == {"input": f"{SAID}, input", "model:1": f"{SAID}, step"}
        assert await db.read(checkpoints.of_task, "done") == {"transcript": f'["{SAID}"]'}
        assert await db.read(acceptance.made_by, OWNER, "m1") == "done"
        counted = "select requests, input_tokens, output_tokens, tool_calls from tasks where id = 'done'"
        assert await rows(db, counted) == [{"requests": 2, "input_tokens": 30, "output_tokens": 40, "tool_calls": 1}]

    upgraded(story)


def test_what_was_seen_is_seen_and_what_was_not_told_yet_is_told_once(upgraded: Upgraded) -> None:
    async def story(db: Database) -> None:
        told = await db.read(journal.after, "done", 0)
        assert [(event.revision, event.number, event.state) for event in told] == [
            (1, 0, "submitted"),
            (2, 0, "working"),
            (3, 0, "completed"),
            (3, 1, "completed"),
        ]
        assert [event.artifact for event in told] == [None, None, ARTIFACTS[0], None]
        before = await db.read(journal.view, OWNER, "broken")
        assert before is not None
        assert (before.state, before.detail) == ("working", None)
        assert (await db.read(journal.behind))["count"] == 1
        while await db.write(journal.project):
            pass
        after = await db.read(journal.view, OWNER, "broken")
        assert after is not None
        assert (after.state, after.detail, after.at) == ("failed", f"{SAID} broke it", AT)  # its milliseconds
        assert [event.revision for event in await db.read(journal.after, "broken", 0)] == [1, 2, 3]

    upgraded(story)


def test_jobs_are_what_they_were_and_their_ends_wait_to_be_told(upgraded: Upgraded) -> None:
    async def story(db: Database) -> None:
        done, bad, out = [await db.read(job_rows.get, OWNER, name) for name in ("bg-done", "bg-bad", "bg-out")]
        assert (done.status, done.description, done.prompt) == ("completed", f"{SAID} to do", f"{SAID} in detail")
        assert (done.excerpt, done.report_chars, done.tools) == (f"{SAID} rep", 20, ("memory_recall",))
        assert (done.delivery, done.delivery_error, done.indexed) == ("pending", f"{SAID} waits", True)
        assert (bad.status, bad.reason, bad.detail, bad.partial) == ("failed", "STALLED", f"{SAID} stood still", True)
        assert (bad.delivery, bad.delivery_task, bad.excerpt) == ("delivered", "done", "")
        assert (out.status, out.completed_at, out.question) == ("running", None, None)
        waiting = await db.read(delivery.waiting, "chat", fired_only=True)
        assert [row["job_id"] for row in waiting] == ["bg-done"]
        assert await db.read(batches.generation_of, "batch", 1) == ["bg-done"]
        (told,) = await db.read(events.after, OWNER, 0)
        assert (told.id, told.name, json.loads(told.data)) == (1, "e", TOLD)

    upgraded(story)


def test_runs_that_were_open_go_on(upgraded: Upgraded) -> None:
    """What a killed worker held is taken over, its lane goes on after it, and what was queued is claimed."""

    async def story(db: Database) -> None:
        (nudge,) = await rows(db, "select * from runs where kind = 'nudge'")
        assert nudge["params"] == '{"batch": "batch", "generation": 1}'
        why = "select unsealed('runs.last_error', key, last_error) from runs where kind = 'nudge'"
        assert await value(db, why) == f"{SAID} is full"
        await heard_of(db)
        await db.write(worker.sweep, "w2")
        (out,) = await db.write(queue.claim, "w2", "job", 9)
        assert (out.task_id, out.attempt) == ("out", 1)
        turn = await begun(db, await db.read(tasks.by_id, "work"))
        assert (turn.run.attempt, turn.run.spent, turn.task.state) == (3, 7 + 30, "working")
        assert await value(db, "select state from runs where key = 'turn:wait'") == "waiting"
        assert await settled(db, turn)
        assert (await begun(db, await db.read(tasks.by_id, "wait"))).task.state == "working"

    upgraded(story)


def test_numbers_go_on_growing_from_where_they_were(upgraded: Upgraded) -> None:
    """The newest rows were gone already: a number that is given twice would be an event that a console has seen."""

    async def story(db: Database) -> None:
        await heard_of(db)
        await db.write(acceptance.accept, message(session_id="fresh"))
        assert await value(db, "select max(id) from messages") == ancient.MESSAGES_SO_FAR + 1
        assert await value(db, "select max(id) from runs") == ancient.RUNS_SO_FAR + 1
        await db.write(events.emit, OWNER, "chat", "next", {})
        assert await db.read(events.newest) == ancient.EVENTS_SO_FAR + 1

    upgraded(story)


def test_every_row_is_still_there_and_belongs_to_what_it_belonged_to(old: Path, upgraded: Upgraded) -> None:
    before = {table: len(found) for table, found in everything(old).items()}

    async def story(db: Database) -> None:
        after = {table: len(found) for table, found in everything(db.path).items()}
        kept = {table: after[table] for table in before if table not in ("unprojected", "migrations")}
        assert kept == {table: before[table] for table in kept}
        assert await rows(db, "pragma foreign_key_check") == []
        assert await value(db, "pragma integrity_check") == "ok"
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
            await db.write(Tx.x, "update tasks set session = 'nobody' where id = 'done'")

    upgraded(story)


# -- its bytes


def test_no_byte_of_the_text_stays_in_any_file_while_it_is_open_nor_afterwards(old: Path, upgraded: Upgraded) -> None:
    """Neither of what was there, nor in free pages of what was deleted long ago, nor in the log that the kill left."""

    async def story(db: Database) -> None:
        assert {word for words in plain_in(db.path).values() for word in words} == set()
        assert len(plain_in(db.path)) == 3, "the file, its log and the log's index"

    upgraded(story)
    assert plain_in(old) == {"registry.db": []}


def test_every_cell_is_sealed_by_the_key_beside_the_file(old: Path, upgraded: Upgraded) -> None:
    async def story(db: Database) -> None:
        key = sealing.key_file(old.with_name(migrating.KEY_FILE)).key_id
        for table, (_, columns) in SEALED.items():
            for column in columns:
                cells = await rows(db, f"select {column} as cell from {table} where {column} is not null")
                assert {sealing.sealed_by(row["cell"]) for row in cells} <= {key}
                assert {type(row["cell"]) for row in cells} <= {bytes}

    upgraded(story)


# -- at once, and cut off

OPENER = """
import asyncio, os, signal, sys
from pathlib import Path
from background import database, sealing
from background.database import Database

path, dies = Path(sys.argv[1]), sys.argv[2]

class Dying(database.sqlite3.Connection):
    def execute(self, sql, *args):
        if dies and sql.strip().startswith(dies):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(sql, *args)

real = database.sqlite3.connect
database.sqlite3.connect = lambda *args, **kwargs: real(*args, factory=Dying, **kwargs)

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    db = await Database(path).open()
    await db.write(lambda tx: tx.x("insert into workers values (:id, 'here', 1, 1, 1, 1)", id=str(os.getpid())))
    await db.close()

asyncio.run(main())
"""


def _opener(path: Path, dies: str = "") -> subprocess.Popen[str]:
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", OPENER, str(path), dies], cwd=ROOT, **pipes)


def test_processes_that_open_it_at_once_bring_it_up_once(old: Path) -> None:
    openers = [_opener(old) for _ in range(3)]
    try:
        for process in openers:
            assert process.stdout and process.stdout.readline() == "ready\n"
        ended = [process.communicate("\n", timeout=30) for process in openers]
        assert [process.returncode for process in openers] == [0] * len(openers), ended
    finally:
        for process in openers:
            process.kill()
    stored = everything(old)
    assert {row[0] for row in stored["workers"]} == {"w", *(str(process.pid) for process in openers)}
    assert len(stored["migrations"]) == NEWEST
    assert len(stored["messages"]) == 4
    assert plain_in(old) == {"registry.db": []}


@pytest.mark.parametrize(
    ("dies", "left"),
    [
        ("drop table jobs", 1),
        ("update events", 1),
        ("insert into migrations", 1),
        ("vacuum", NEWEST),
        ("pragma user_version=0", NEWEST),
    ],
    ids=["copying", "sealing", "all but the commit", "all but cleaning up", "cleaned up"],
)
def test_a_kill_at_any_moment_leaves_one_version_whole_and_the_next_opening_goes_on(
    old: Path, clock: Clock, dies: str, left: int
) -> None:
    before = everything(old)
    process = _opener(old, dies)
    process.communicate("\n", timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert version(old) == left
    if left == 1:
        assert everything(old) == before

    async def story() -> None:
        async with _opened(old, clock) as db:
            assert {word for words in plain_in(db.path).values() for word in words} == set()
            assert await db.read(results.read, "done") == results.Result(ARTIFACTS)

    asyncio.run(story())


class _Unlucky(sqlite3.Connection):
    """A connection whose statement number `fails_at` finds the disk full."""

    fails_at = -1
    heard: list[str] = []  # noqa: RUF012 - one list for all of them

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        self.heard.append(sql)
        if len(self.heard) - 1 == self.fails_at:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return super().execute(sql, *args)


def test_whichever_statement_fails_version_1_stays_whole(
    old: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(old)
    real = sqlite3.connect
    connection = {"factory": _Unlucky}
    monkeypatch.setattr(database.sqlite3, "connect", lambda *args, **more: real(*args, **{**connection, **more}))

    def attempt(fails_at: int) -> list[str]:
        monkeypatch.setattr(_Unlucky, "heard", [])
        monkeypatch.setattr(_Unlucky, "fails_at", fails_at)

        async def story() -> None:
            with pytest.raises(StorageUnavailable, match="full"):
                await Database(old, clock).open()

        asyncio.run(story())
        return _Unlucky.heard

    tried: list[str] = []
    fails_at = 0
    while not (tried and tried[-1] == "commit"):
        heard = attempt(fails_at)
        monkeypatch.setattr(_Unlucky, "fails_at", -1)
        assert everything(old) == before, f"statement {fails_at}: {heard[-2:]}"
        tried.append(heard[fails_at])
        near_its_end = any(sql.startswith("update messages") for sql in heard)
        fails_at += 1 if near_its_end else 5
    assert len(tried) > 25
    assert "insert into migrations" in tried[-2]
    assert version(old) == 1
