"""A registry as version 1 wrote it: in plain text, with rows of every table, left behind by a kill in the middle of work.

`SAID` is in all that people said and models answered, so that it can be looked for afterwards.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from background.migrating import MIGRATIONS, migrate

SAID = "kanarienvogel"
WAS_SAID_BEFORE = "wellensittich"  # in rows that were deleted long ago
AT = 1_800_000_000_000_000 - 60_000_000  # a minute before the clock of the tests begins
EVENTS_SO_FAR, RUNS_SO_FAR, MESSAGES_SO_FAR = 5000, 900, 700  # the newest of each are gone

ARTIFACTS = [{"artifactId": "done-1", "parts": [{"text": f"{SAID} is the answer. Ünïcödé ☃"}]}]
REPORT = [{"artifactId": "told-1", "parts": [{"text": f"{SAID} report"}]}]
SENT = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": f"{SAID}?"}]}
TOLD = {"id": "bg-done", "status": "completed", "excerpt": SAID}


def left_behind(folder: Path) -> Path:
    """The registry in `folder`: its file and its write-ahead log, which a killed process has not closed."""
    source = folder / "source"
    source.mkdir()
    shutil.copy(MIGRATIONS / "0001_initial.sql", source)
    with closing(sqlite3.connect(source / "registry.db", isolation_level=None)) as connection:
        connection.execute("pragma journal_mode=wal")
        connection.execute("pragma synchronous=off")
        connection.execute("pragma foreign_keys=on")
        migrate(connection, AT, source)
        _fill(connection)
        for name in ("registry.db", "registry.db-wal"):
            shutil.copy(source / name, folder)
    shutil.rmtree(source)
    return folder / "registry.db"


def _fill(connection: sqlite3.Connection) -> None:
    def put(table: str, *rows: dict[str, Any]) -> None:
        for row in rows:
            marks = ", ".join(f":{name}" for name in row)
            connection.execute(f"insert into {table} ({', '.join(row)}) values ({marks})", row)

    def task(name: str, state: str, **more: Any) -> dict[str, Any]:
        ended = None if state in ("submitted", "working") else AT + 9
        plain = {"id": name, "owner": "local", "session": "chat", "profile": "chat", "origin": "user", "state": state}
        return {**plain, "created_at": AT, "started_at": AT + 1, "ended_at": ended, "revision": 3, **more}

    def run(number: int, kind: str, key: str, state: str, **more: Any) -> dict[str, Any]:
        ended = AT + 9 if state == "done" else None
        plain = {"id": number, "kind": kind, "key": key, "state": state, "due_at": AT, "created_at": AT}
        return {**plain, "ended_at": ended, **more}

    def job(name: str, status: str, **more: Any) -> dict[str, Any]:
        ended = None if status == "running" else AT + 9
        plain = {"id": name, "owner": "local", "session": "chat", "batch_id": "batch", "key": name, "status": status}
        plain |= {"fingerprint": "f", "subagent_type": "general", "tools": '["memory_recall"]', "created_at": AT}
        said = {"description": f"{SAID} to do", "prompt": f"{SAID} in detail"}
        return {**plain, **said, "started_at": AT + 1, "completed_at": ended, **more}

    chat = {"owner": "local", "kind": "chat", "created_at": AT, "updated_at": AT + 5}
    put("sessions", {"uid": "chat", "id": "s", "title": f"{SAID}?", "unattended": 2, **chat})
    put("sessions", {"uid": "silent", "id": "silent", **chat})
    for name in ("bg-done", "bg-out"):
        put("sessions", {**chat, "uid": f"of {name}", "id": f"background:{name}", "kind": "background"})
    put("tasks", task("done", "completed", requests=2, input_tokens=30, output_tokens=40, tool_calls=1))
    put("tasks", task("broken", "failed", reason="MODEL_FAILED", detail=f"{SAID} broke it"))
    put("tasks", task("work", "working", revision=2), task("wait", "submitted", revision=1, started_at=None))
    put("tasks", task("told", "completed", session="of bg-done", origin="background", cause="bg-done"))
    put("tasks", task("out", "working", session="of bg-out", origin="background", cause="bg-out", revision=2))
    put("receipts", {"owner": "local", "message_id": "m1", "fingerprint": "f1", "task_id": "done"})
    states = {"done": "completed", "broken": "failed", "told": "completed", "work": "working", "out": "working"}
    for name, state in {**states, "wait": "submitted"}.items():
        shown = {"submitted": 1, "working": 2}.get(state, 3)
        for revision, was in enumerate(("submitted", "working", state)[:shown], start=1):
            put("revisions", {"task_id": name, "revision": revision, "state": was, "at": AT + revision})
            if (name, revision) != ("broken", 3):
                entry = {"task_id": name, "revision": revision, "number": 0, "kind": "status", "state": was}
                if was == "completed":
                    put("journal", {**entry, "kind": "artifact", "artifact": 0, "at": AT + 3})
                    entry["number"] = 1
                put("journal", {**entry, "at": AT + revision})
        seen = {"owner": "local", "session": "chat", "revision": shown, "state": state, "at": AT + shown}
        put("views", {"task_id": name, **seen, **({"revision": 2, "state": "working"} if name == "broken" else {})})
    put("unprojected", {"task_id": "broken"})
    put("results", {"task_id": "done", "artifacts": json.dumps(ARTIFACTS), "created_at": AT + 9})
    put("results", {"task_id": "told", "artifacts": json.dumps(REPORT), "created_at": AT + 9})
    put("results", {"task_id": "broken", "artifacts": "[]", "partial": f"{SAID} so f", "created_at": AT + 9})
    put("checkpoints", {"task_id": "done", "name": "transcript", "content": f'["{SAID}"]', "created_at": AT + 9})
    put("checkpoints", {"task_id": "work", "name": "input", "content": f"{SAID}, input", "created_at": AT + 1})
    put("checkpoints", {"task_id": "work", "name": "model:1", "content": f"{SAID}, step", "created_at": AT + 2})
    for number in range(40):
        content = f"{WAS_SAID_BEFORE} " * 200
        put("checkpoints", {"task_id": "wait", "name": f"old:{number}", "content": content, "created_at": AT})
    connection.execute("pragma wal_checkpoint(truncate)")  # so that it stood in the file, and stands in free pages
    connection.execute("delete from checkpoints where task_id = 'wait'")
    held = {"attempt": 2, "tries": 1, "worker": "w", "leased_at": AT, "lease_until": AT + 30, "spent": 7}
    put("runs", run(1, "turn", "turn:done", "done", task_id="done", lane="session:chat"))
    put("runs", run(2, "turn", "turn:work", "running", task_id="work", lane="session:chat", **held))
    put("runs", run(3, "turn", "turn:wait", "waiting", task_id="wait", lane="session:chat"))
    put(
        "runs",
        run(4, "job", "turn:out", "queued", task_id="out", lane="session:of bg-out", last_error=f"{SAID} stopped"),
    )
    nudge = json.dumps({"batch": "batch", "generation": 1})
    put("runs", run(5, "nudge", "nudge:batch:1", "queued", params=nudge, last_error=f"{SAID} is full"))
    put("messages", {"id": 1, **_said("user", f"{SAID}?", "done"), "content": json.dumps(SENT)})
    put("messages", {"id": 2, **_said("agent", "", "done")})
    put("messages", {"id": 3, **_said("notification", f"{SAID} has ended", "done"), "job_ids": '["bg-done"]'})
    put("messages", {"id": 4, **_said("user", f"{SAID}!", "work"), "content": json.dumps({**SENT, "messageId": "m2"})})
    put("batches", {"id": "batch", "owner": "local", "session": "chat", "generation": 1, "created_at": AT})
    report = {"excerpt": f"{SAID} rep", "report_chars": 20, "indexed": 1}
    put("jobs", job("bg-done", "completed", task_id="told", **report), job("bg-out", "running", task_id="out"))
    put("jobs", job("bg-bad", "failed", reason="STALLED", detail=f"{SAID} stood still", partial=1))
    waits = {"session": "chat", "ready_at": AT + 9, "ended_at": AT + 9, "attempt": 1}
    put("deliveries", {"job_id": "bg-done", "state": "pending", "tries": 1, "last_error": f"{SAID} waits", **waits})
    put("deliveries", {"job_id": "bg-bad", "state": "delivered", "task_id": "done", "notified_at": AT + 9, **waits})
    for name, status in (("bg-done", "completed"), ("bg-bad", "failed"), ("bg-out", None)):
        joined = 1 if name == "bg-done" else None
        put("members", {"batch_id": "batch", "job_id": name, "attempt": 1, "status": status, "generation": joined})
    put("joins", {"batch_id": "batch", "generation": 1, "counts": '{"completed": 1, "failed": 1, "out": 1}', "at": AT})
    put(
        "events",
        {"id": 1, "owner": "local", "session": "chat", "name": "e", "data": json.dumps(TOLD), "created_at": AT},
    )
    put("workers", {"id": "w", "host": "h", "pid": 1, "started_at": AT, "beat_at": AT, "swept_at": AT})
    for table, so_far in (("events", EVENTS_SO_FAR), ("runs", RUNS_SO_FAR), ("messages", MESSAGES_SO_FAR)):
        connection.execute("update sqlite_sequence set seq = ? where name = ?", (so_far, table))


def _said(kind: str, text: str, task_id: str) -> dict[str, Any]:
    role = "agent" if kind == "agent" else "user"
    return {"session": "chat", "task_id": task_id, "role": role, "kind": kind, "text": text, "created_at": AT}
