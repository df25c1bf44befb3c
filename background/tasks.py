"""How a task begins and comes along: accept, begin, checkpoint. Owns `tasks`, `receipts`, `checkpoints`.

Acceptance is one transaction, or nothing; it never runs anything. How a task ends stands in `terminal.py`.
"""

import uuid
from dataclasses import dataclass
from typing import Any

from background import events, jobs, journal, queue, sessions
from background.database import Row, Tx
from background.errors import Fault, not_found
from background.queue import Run
from background.states import TASK, guard, target

NO_WORKER = "No worker is live, so nothing would run; nothing was stored."


@dataclass(frozen=True)
class Usage:
    """What a turn has cost so far: model calls, tokens, tool calls."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    tool_calls: int = 0


@dataclass(frozen=True)
class Incoming:
    """A message to be accepted. `origin` and `cause` come from the sender's credential, never from the message."""

    owner: str
    session_id: str
    message_id: str
    fingerprint: str
    text: str
    content: dict[str, Any]
    profile: str = "chat"
    origin: str = "user"
    cause: str | None = None
    task_id: str | None = None


@dataclass(frozen=True)
class Accepted:
    """The task that a message made; `new` is False when it had made it before."""

    task_id: str
    new: bool


@dataclass(frozen=True)
class Task:
    """A task's row."""

    id: str
    owner: str
    session: str
    profile: str
    origin: str
    cause: str | None
    state: str
    created_at: int
    started_at: int | None

    @classmethod
    def of(cls, row: Row) -> "Task":
        return cls(**{name: row[name] for name in cls.__dataclass_fields__})


def accept(tx: Tx, message: Incoming) -> Accepted:
    """Take a message in: receipt, session if new, task, log, run. Raises faults, and then nothing is stored.

    Reasons: `MESSAGE_ID_REUSED`, `WORKER_UNAVAILABLE`, `OPEN_TASKS_LIMIT_REACHED`.
    """
    known = _receipt(tx, message)
    if known:
        return known
    if message.task_id is not None:
        _refuse_reply(tx, message)
    require_worker(tx)
    if message.origin == "user":
        _check_open_tasks(tx, message.owner)
    return Accepted(_create(tx, message), new=True)


def _receipt(tx: Tx, message: Incoming) -> Accepted | None:
    row = tx.one(
        "select fingerprint, task_id from receipts where owner = :owner and message_id = :id",
        owner=message.owner,
        id=message.message_id,
    )
    if row is None:
        return None
    if row["fingerprint"] != message.fingerprint:
        raise Fault("invalid", "This message id was used for another message.", reason="MESSAGE_ID_REUSED")
    return Accepted(row["task_id"], new=False)


def made_by(tx: Tx, owner: str, message_id: str) -> str | None:
    """The task that a message made, or None where it has not come."""
    return tx.value(
        "select task_id from receipts where owner = :owner and message_id = :id", owner=owner, id=message_id
    )


def _refuse_reply(tx: Tx, message: Incoming) -> None:
    """A message to a task: unknown, ended, or one that takes none."""
    task = find(tx, message.owner, message.task_id or "")
    if task is None:
        raise not_found("task")
    state = "has ended" if task.state in journal.ENDS else "takes no further message while it runs"
    raise Fault("refused", f"This task {state}; send the message without a task id.", task=task.id)


def require_worker(tx: Tx) -> None:
    """Raises an `unavailable` fault unless a worker was heard from within its time."""
    last = tx.value("select max(max(beat_at, swept_at)) from workers")
    if last is None or tx.now - last > tx.limits.worker_ttl:
        raise Fault("unavailable", NO_WORKER, reason="WORKER_UNAVAILABLE")


def _check_open_tasks(tx: Tx, owner: str) -> None:
    open_tasks = tx.value(
        "select count(*) from tasks where owner = :owner and ended_at is null and origin = 'user'",
        owner=owner,
    )
    if open_tasks >= tx.limits.max_open_tasks:
        raise Fault(
            "unavailable",
            f"You have {open_tasks} unfinished tasks, and no more than {tx.limits.max_open_tasks} are allowed.",
            reason="OPEN_TASKS_LIMIT_REACHED",
            limit="OUTRIDER_MAX_OPEN_TASKS_PER_USER",
        )


def _create(tx: Tx, message: Incoming) -> str:
    background = message.origin == "background"
    session = sessions.open_session(tx, message.owner, message.session_id, "background" if background else "chat")
    task_id = str(uuid.uuid4())
    tx.x(
        "insert into tasks (id, owner, session, profile, origin, cause, state, created_at) "
        "values (:id, :owner, :session, :profile, :origin, :cause, 'submitted', :now)",
        id=task_id,
        owner=message.owner,
        session=session.uid,
        profile=message.profile,
        origin=message.origin,
        cause=message.cause,
        now=tx.now,
    )
    tx.x(
        "insert into receipts values (:owner, :message_id, :fingerprint, :task)",
        owner=message.owner,
        message_id=message.message_id,
        fingerprint=message.fingerprint,
        task=task_id,
    )
    nudge = message.origin == "background-resume"
    sessions.log(tx, session.uid, "nudge" if nudge else "user", message.text, task_id=task_id, content=message.content)
    journal.begin(tx, task_id, message.owner, session.uid)
    queue.enqueue(
        tx, "job" if background else "turn", f"turn:{task_id}", lane=f"session:{session.uid}", task_id=task_id
    )
    if message.origin == "user":
        sessions.heard_from_user(tx, session, message.text)
    if background and not jobs.dispatched(tx, message.cause or "", task_id):
        raise Fault("conflict", "The job has ended, or was dispatched before.")
    return task_id


def find(tx: Tx, owner: str, task_id: str) -> Task | None:
    """The owner's task, or None; another's does not exist."""
    row = tx.one("select * from tasks where id = :id and owner = :owner", id=task_id, owner=owner)
    return Task.of(row) if row else None


def by_id(tx: Tx, task_id: str) -> Task:
    row = tx.one("select * from tasks where id = :id", id=task_id)
    assert row is not None, task_id
    return Task.of(row)


def begin(tx: Tx, run: Run) -> tuple[Task, bool]:
    """The claimed run's task, now working; True if it begins, False if it goes on. Raises `LeaseLost`."""
    queue.fence(tx, run)
    row = tx.one(
        "update tasks set state = 'working', started_at = :now, revision = revision + 1 "
        f"where id = :id and state in {guard(TASK, 'begin')} returning *",
        id=run.task_id,
        now=tx.now,
    )
    if row is None:
        return by_id(tx, run.task_id or ""), False
    task = Task.of(row)
    journal.record(tx, task.id, row["revision"], task.state)
    if task.origin == "background":
        jobs.begin(tx, task.id)
    else:
        emit_turn(tx, task, "turn.started")
    return task, True


def emit_turn(tx: Tx, task: Task, name: str, **more: Any) -> None:
    """A `turn.*` event of this task."""
    data = {
        "session": sessions.by_uid(tx, task.session).id,
        "task_id": task.id,
        "origin": task.origin,
        "trigger": task.cause,
    }
    events.emit(tx, task.owner, task.session, name, {**data, **more})


def checkpoint(tx: Tx, run: Run, name: str, content: str, usage: Usage | None = None) -> None:
    """Keep how far the turn has come; the first write of a name wins, and the lease moves on. Raises `LeaseLost`."""
    queue.progress(tx, run)
    tx.x(
        "insert into checkpoints (task_id, name, content, created_at) values (:task, :name, :content, :now) on conflict do nothing",
        task=run.task_id,
        name=name,
        content=content,
        now=tx.now,
    )
    if usage:
        spent(tx, run.task_id or "", usage)


def spent(tx: Tx, task_id: str, usage: Usage) -> None:
    """The sums so far."""
    tx.x(
        "update tasks set requests = :requests, input_tokens = :input_tokens, output_tokens = :output_tokens, "
        "tool_calls = :tool_calls where id = :id",
        id=task_id,
        **vars(usage),
    )


def checkpoints(tx: Tx, task_id: str) -> dict[str, str]:
    """All checkpoints of a task, by name, in order of writing."""
    rows = tx.q("select name, content from checkpoints where task_id = :task order by created_at, name", task=task_id)
    return {row["name"]: row["content"] for row in rows}


def keep_last_checkpoint(tx: Tx, task_id: str, transcript: str | None) -> None:
    """At the end one checkpoint stays, for whoever looks into it: the whole turn as the model saw it, or the last step."""
    if transcript is not None:
        tx.x("delete from checkpoints where task_id = :task", task=task_id)
        tx.x(
            "insert into checkpoints (task_id, name, content, created_at) values (:task, 'transcript', :content, :now)",
            task=task_id,
            content=transcript,
            now=tx.now,
        )
        return
    tx.x(
        "delete from checkpoints where task_id = :task and name <> "
        "(select name from checkpoints where task_id = :task order by created_at desc, name desc limit 1)",
        task=task_id,
    )


def past_turns(tx: Tx, session: str, before: str, limit: int) -> list[Row]:
    """The session's ended turns before task `before`, the latest `limit`, oldest first: id, state, detail, transcript."""
    rows = tx.q(
        "select t.id, t.state, t.reason, t.detail, c.content as transcript, "
        "(select text from messages m where m.task_id = t.id and m.kind = 'user' order by m.id limit 1) as text "
        "from tasks t left join checkpoints c on c.task_id = t.id and c.name = 'transcript' "
        "where t.session = :session and t.ended_at is not null and t.folded_into is null and t.id <> :before "
        "order by t.ended_at desc, t.id desc limit :limit",
        session=session,
        before=before,
        limit=limit,
    )
    return rows[::-1]


def end(
    tx: Tx, task_id: str, move: str, *, reason: str | None, detail: str | None, folded_into: str | None = None
) -> Row | None:
    """The guarded statement that ends a task; None if another was first. For `terminal.py` alone."""
    row = tx.one(
        "update tasks set state = :state, reason = :reason, detail = :detail, folded_into = :into, ended_at = :now, "
        f"revision = revision + 1 where id = :id and state in {guard(TASK, move)} returning *",
        id=task_id,
        state=target(TASK, move),
        reason=reason,
        detail=detail,
        into=folded_into,
        now=tx.now,
    )
    if row is not None:
        journal.record(tx, task_id, row["revision"], row["state"])
    return row


def waiting_nudges(tx: Tx, session: str) -> list[Task]:
    """The session's nudges that have not begun, oldest first."""
    rows = tx.q(
        "select * from tasks where session = :session and ended_at is null and origin = 'background-resume' "
        "and state = 'submitted' order by created_at, id",
        session=session,
    )
    return [Task.of(row) for row in rows]


def running(tx: Tx, session: str) -> Task | None:
    """The turn that is at work in a session, or None."""
    row = tx.one("select * from tasks where session = :session and state = 'working'", session=session)
    return Task.of(row) if row else None
