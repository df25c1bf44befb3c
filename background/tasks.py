"""How a task begins and comes along: accept, begin, checkpoint. Owns `tasks`, `receipts`, `checkpoints`.

Acceptance is one transaction, or nothing; it never runs anything. How a task ends stands in `terminal.py`.
"""

import json
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from background import ceilings, events, jobs, journal, questions, queue, sessions
from background.database import Row, Tx
from background.errors import Fault, not_found
from background.questions import Answer, Asked, Question
from background.queue import Run
from background.sessions import Session
from background.states import TASK, guard, target

NO_WORKER = "No worker is live, so nothing would run; nothing was stored."
NOT_STORABLE = "The answer level of this profile keeps no result, so nothing is begun; nothing was stored."


@dataclass(frozen=True)
class Usage:
    """What a turn has cost so far: model calls, tokens, tool calls."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    tool_calls: int = 0


@dataclass(frozen=True)
class Incoming:
    """A message to be accepted. `origin` and `cause` come from the sender's credential, never from the message.

    `ceiling` is the level that installation and profile allow; `max_open` the profile's own limit of open tasks. For an
    answer: `data` is its first data part, `question` the digest of the question that it was made for, if it says so.
    """

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
    ceiling: str = "full"
    max_open: int | None = None
    data: Any = None
    question: str | None = None


@dataclass(frozen=True)
class Accepted:
    """The task that a message made or answered, and the revision that came of it; `new` is False for one that came before."""

    task_id: str
    new: bool
    revision: int = 1


@dataclass(frozen=True)
class Task:
    """A task's row, with its session's id and kind."""

    id: str
    owner: str
    session: str
    session_id: str
    profile: str
    origin: str
    cause: str | None
    state: str
    ceiling: str
    revision: int
    created_at: int
    started_at: int | None

    @classmethod
    def of(cls, row: Row) -> "Task":
        return cls(**{name: row[name] for name in cls.__dataclass_fields__})


_SELECT = "select t.*, s.id as session_id from tasks t join sessions s on s.uid = t.session"
_RETURNING = "returning *, (select id from sessions where uid = tasks.session) as session_id"


@dataclass(frozen=True)
class _Known:
    """What acceptance has to know before it decides, read at once."""

    fingerprint: str | None
    made: str | None
    heard_at: int | None
    session: Session | None


def accept(tx: Tx, message: Incoming) -> Accepted:
    """Take a message in: receipt, session if new, task, log, run. Raises faults, and then nothing is stored.

    A message to a parked task is its answer. Reasons: `MESSAGE_ID_REUSED`, `WORKER_UNAVAILABLE`,
    `OPEN_TASKS_LIMIT_REACHED`, `RESULT_NOT_STORABLE`.
    """
    known = _look(tx, message)
    if known.made is not None:
        if known.fingerprint != message.fingerprint:
            raise Fault("invalid", "This message id was used for another message.", reason="MESSAGE_ID_REUSED")
        return Accepted(known.made, new=False)
    if message.task_id is not None:
        return _accept_reply(tx, message, known)
    if not ceilings.can_keep(message.ceiling):
        raise Fault("refused", NOT_STORABLE, reason="RESULT_NOT_STORABLE", level=message.ceiling)
    _require_heard(tx, known.heard_at)
    if message.origin == "user":
        _check_open_tasks(tx, message)
    return Accepted(_create(tx, _kept(tx, message, message.ceiling), known.session), new=True)


def _look(tx: Tx, message: Incoming) -> _Known:
    (row,) = tx.q(
        "select r.fingerprint, r.task_id as made, s.*, (select max(max(beat_at, swept_at)) from workers) as heard_at "
        "from (select 1) left join receipts r on r.owner = :owner and r.message_id = :message "
        "left join sessions s on s.owner = :owner and s.id = :session",
        owner=message.owner,
        message=message.message_id,
        session=message.session_id,
    )
    session = None if row["uid"] is None else Session.of(row)
    return _Known(row["fingerprint"], row["made"], row["heard_at"], session)


def _kept(tx: Tx, message: Incoming, level: str) -> Incoming:
    """The message as its level allows it to be stored."""
    if level == "full":
        return message
    content = ceilings.keep_json(level, message.content, tx.redact)
    return replace(message, text=ceilings.keep(level, message.text, tx.redact), content=content)


def made_by(tx: Tx, owner: str, message_id: str) -> str | None:
    """The task that a message made, or None where it has not come."""
    return tx.value(
        "select task_id from receipts where owner = :owner and message_id = :id", owner=owner, id=message_id
    )


def require_worker(tx: Tx) -> None:
    """Raises an `unavailable` fault unless a worker was heard from within its time."""
    _require_heard(tx, tx.value("select max(max(beat_at, swept_at)) from workers"))


def _require_heard(tx: Tx, heard_at: int | None) -> None:
    if heard_at is None or tx.now - heard_at > tx.limits.worker_ttl:
        raise Fault("unavailable", NO_WORKER, reason="WORKER_UNAVAILABLE")


def _check_open_tasks(tx: Tx, message: Incoming) -> None:
    (row,) = tx.q(
        "select count(*) as every, coalesce(sum(profile = :profile), 0) as same from tasks "
        "where owner = :owner and ended_at is null and origin = 'user'",
        owner=message.owner,
        profile=message.profile,
    )
    bounds = [(row["every"], tx.limits.max_open_tasks, "OUTRIDER_MAX_OPEN_TASKS_PER_USER", "tasks")]
    if message.max_open is not None:
        name = message.profile
        bounds.append(
            (row["same"], message.max_open, f"profiles.{name}.max_open_tasks", f"tasks of the profile {name}")
        )
    for there, most, limit, what in bounds:
        if there >= most:
            told = f"You have {there} unfinished {what}, and no more than {most} are allowed."
            raise Fault("unavailable", told, reason="OPEN_TASKS_LIMIT_REACHED", limit=limit)


def _create(tx: Tx, message: Incoming, session: Session | None) -> str:
    background = message.origin == "background"
    kind = "background" if background else "chat"
    user = message.origin == "user"
    if message.origin == "background-resume" and not jobs.sent_from(tx, session and session.uid, message.cause or ""):
        raise Fault("conflict", "What this would tell of is gone.")  # it was erased after the post had been made
    if session is None:
        session = sessions.make(tx, message.owner, message.session_id, kind, message.text if user else "")
    elif session.kind != kind:
        raise sessions.another_kind(session)
    elif user:
        sessions.heard_from_user(tx, session, message.text)
    task_id = str(uuid.uuid4())
    tx.x(
        "insert into tasks (id, owner, session, profile, origin, cause, state, ceiling, created_at) "
        "values (:id, :owner, :session, :profile, :origin, :cause, 'submitted', :ceiling, :now)",
        id=task_id,
        owner=message.owner,
        session=session.uid,
        profile=message.profile,
        origin=message.origin,
        cause=message.cause,
        ceiling=message.ceiling,
        now=tx.now,
    )
    _receive(tx, message, task_id)
    nudge = message.origin == "background-resume"
    sessions.log(tx, session.uid, "nudge" if nudge else "user", message.text, task_id=task_id, content=message.content)
    journal.begin(tx, task_id, message.owner, session.uid, listed=not background)
    queue.enqueue(
        tx, "job" if background else "turn", f"turn:{task_id}", lane=f"session:{session.uid}", task_id=task_id
    )
    if background and not jobs.dispatched(tx, message.cause or "", task_id):
        raise Fault("conflict", "The job has ended, or was dispatched before.")
    return task_id


def _receive(tx: Tx, message: Incoming, task_id: str) -> None:
    tx.x(
        "insert into receipts values (:owner, :message_id, :fingerprint, :task)",
        owner=message.owner,
        message_id=message.message_id,
        fingerprint=message.fingerprint,
        task=task_id,
    )


# -- a message to a task


def _accept_reply(tx: Tx, message: Incoming, known: _Known) -> Accepted:
    """A message to a task: the answer of a parked one, more to take up for one at work. One that has ended takes none."""
    task = find(tx, message.owner, message.task_id or "")
    if task is None:
        raise not_found("task")
    if task.state in journal.ENDS:
        raise Fault("refused", "This task has ended; send the message without a task id.", task=task.id)
    asked = questions.current(tx, task.id)
    if asked is None:
        questions.require_none(message.question)
        _require_heard(tx, known.heard_at)
        _receive(tx, message, task.id)
        return Accepted(task.id, True, _add(tx, task, _kept(tx, message, task.ceiling)))
    answer = questions.check(asked, message.text, message.data, message.question)
    questions.require_open(tx, asked, set(_names(tx, task.id)))
    _require_heard(tx, known.heard_at)
    _receive(tx, message, task.id)
    return Accepted(task.id, True, _answer(tx, task, asked, _kept(tx, message, task.ceiling), answer))


def _add(tx: Tx, task: Task, message: Incoming) -> int:
    """The message stands in the task's history, and the task does not end before it has taken it up."""
    sessions.log(tx, task.session, "user", message.text, task_id=task.id, content=message.content, waits=True)
    _heard_from_user(tx, task, message.text)
    return task.revision


def _heard_from_user(tx: Tx, task: Task, text: str) -> None:
    if task.origin != "background":  # a job's own session has no user
        sessions.heard_from_user(tx, sessions.by_uid(tx, task.session), text)


def _answer(tx: Tx, task: Task, asked: Asked, message: Incoming, answer: Answer) -> int:
    """The task goes on from the step that asked, as the next run in its session's lane. Returns its revision."""
    row = tx.one(
        f"update tasks set state = 'working', revision = revision + 1 where id = :id and state in {guard(TASK, 'answer')} "
        "returning revision",
        id=task.id,
    )
    assert row is not None, task.id
    questions.answered(tx, task.id, asked)
    sessions.log(tx, task.session, "user", message.text, task_id=task.id, content=message.content)
    _heard_from_user(tx, task, message.text)
    kept = replace(
        answer,
        text=ceilings.keep(task.ceiling, answer.text, tx.redact),
        data=ceilings.keep_json(task.ceiling, answer.data, tx.redact),
    )
    _keep(tx, task.id, f"answer:{asked.key}", kept.stored)
    journal.record(tx, task.id, row["revision"], "working")
    queue.cancel_key(tx, f"expire:{task.id}:{asked.revision}")
    queue.go_on(tx, asked.run_id, f"turn:{task.id}:{row['revision']}")
    if task.origin == "background":
        jobs.answered(tx, task.id)
    else:
        emit_turn(tx, task, "turn.started")
    return row["revision"]


def park(tx: Tx, run: Run, question: Question, deadline: int | None) -> tuple[Task, Asked] | None:
    """The task of a parked run waits for an answer; None if it has ended. For `terminal.py` alone."""
    move = "authenticate" if question.kind == "auth" else "park"
    row = tx.one(
        f"update tasks set state = :state, revision = revision + 1 where id = :id and state in {guard(TASK, move)} "
        f"{_RETURNING}",
        id=run.task_id,
        state=target(TASK, move),
    )
    if row is None:
        return None
    task = Task.of(row)
    kept = replace(
        question,
        text=ceilings.keep(task.ceiling, question.text, tx.redact),
        detail=ceilings.keep(task.ceiling, question.detail, tx.redact),
    )
    asked = questions.ask(tx, task.id, task.revision, kept, run.id, deadline)
    journal.record(tx, task.id, task.revision, task.state)
    return task, asked


def find(tx: Tx, owner: str, task_id: str) -> Task | None:
    """The owner's task, or None; another's does not exist."""
    row = tx.one(f"{_SELECT} where t.id = :id and t.owner = :owner", id=task_id, owner=owner)
    return Task.of(row) if row else None


def by_id(tx: Tx, task_id: str) -> Task:
    row = tx.one(f"{_SELECT} where t.id = :id", id=task_id)
    assert row is not None, task_id
    return Task.of(row)


def begin(tx: Tx, run: Run) -> tuple[Task, bool]:
    """The claimed run's task, now working; True if it begins, False if it goes on. Raises `LeaseLost`."""
    row = tx.one(
        "update tasks set state = 'working', started_at = :now, revision = revision + 1 "
        f"where id = :id and state in {guard(TASK, 'begin')} and exists "
        f"(select 1 from runs where id = :run and attempt = :attempt and state = 'running') {_RETURNING}",
        id=run.task_id,
        run=run.id,
        attempt=run.attempt,
        now=tx.now,
    )
    if row is None:
        queue.fence(tx, run)
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
    data = {"session": task.session_id, "task_id": task.id, "origin": task.origin, "trigger": task.cause}
    events.emit(tx, task.owner, task.session, name, {**data, **more})


def fragment(tx: Tx, run: Run, text: str, *, anew: bool = False) -> None:
    """Commit a piece of the answer, which whoever watches may read. Raises `LeaseLost`.

    `anew`: the answer begins with it, in place of all that was told before.
    """
    queue.fence(tx, run)  # no step: what it tells is told again by the next try
    row = tx.one(
        "update tasks set revision = revision + 1 where id = :id and state = 'working' and ceiling = 'full' returning revision",
        id=run.task_id,
    )
    if row is None:  # at another level: a piece cannot be masked, what is to be masked may be cut in two
        return
    if anew:
        journal.drop_fragments(tx, run.task_id or "")
    journal.fragment(tx, run.task_id or "", row["revision"], text)


def checkpoint(tx: Tx, run: Run, name: str, content: str, usage: Usage | None = None) -> str:
    """Keep how far the turn has come; the first write of a name wins, and the lease moves on. Raises `LeaseLost`.

    Returns the task's answer level, at which it was kept.
    """
    queue.progress(tx, run)
    level = ceiling_of(tx, run.task_id or "")
    _keep(tx, run.task_id or "", name, ceilings.keep_json(level, content, tx.redact))
    if usage:
        spent(tx, run.task_id or "", usage)
    return level


def _keep(tx: Tx, task_id: str, name: str, content: str) -> None:
    tx.x(
        "insert into checkpoints (task_id, name, content, created_at) values (:task, :name, :content, :now) on conflict do nothing",
        task=task_id,
        name=name,
        content=tx.seal("checkpoints.content", f"{task_id}/{name}", content),
        now=tx.now,
    )


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
    return {row["name"]: _opened(tx, task_id, row["name"], row["content"]) for row in rows}


def begin_call(tx: Tx, run: Run, key: str, name: str) -> None:
    """A call of `name` begins at step `key` that goes on when its turn is stopped. No progress: it may be its worker's end."""
    queue.fence(tx, run)
    _keep(tx, run.task_id or "", f"call:{key}", json.dumps(name))


def going_on(tx: Tx, task_id: str) -> list[str]:
    """What a task at work has called that a cancel does not reach, by name."""
    if tx.one("select 1 from runs where task_id = :task and state = 'running'", task=task_id) is None:
        return []
    kept = checkpoints(tx, task_id)
    begun = {name for name in kept if name.startswith("call:")}
    return sorted({json.loads(kept[name]) for name in begun if name.removeprefix("call:") not in kept})


def _names(tx: Tx, task_id: str) -> list[str]:
    return [row["name"] for row in tx.q("select name from checkpoints where task_id = :task", task=task_id)]


def _opened(tx: Tx, task_id: str, name: str, cell: bytes) -> str:
    return tx.unseal("checkpoints.content", f"{task_id}/{name}", cell)


def keep_last_checkpoint(tx: Tx, task_id: str, transcript: str | None) -> None:
    """At the end one checkpoint stays, for whoever looks into it: the whole turn as the model saw it, or the last step."""
    if transcript is not None:
        tx.x("delete from checkpoints where task_id = :task", task=task_id)
        _keep(tx, task_id, "transcript", transcript)
        return
    tx.x(
        "delete from checkpoints where task_id = :task and name <> "
        "(select name from checkpoints where task_id = :task order by created_at desc, name desc limit 1)",
        task=task_id,
    )


def scrub(tx: Tx, task_id: str) -> None:
    """Nothing of how far the turn came is kept, nor of why it failed beyond its reason."""
    tx.x("delete from checkpoints where task_id = :task", task=task_id)
    tx.x("update tasks set detail = null where id = :task and reason is null", task=task_id)


@dataclass(frozen=True)
class Past:
    """An earlier turn of a session: what its user said, and the whole turn as the model saw it, if it is kept."""

    state: str
    detail: str | None
    transcript: str | None
    text: str | None


def past_turns(tx: Tx, session: str, before: str, limit: int) -> list[Past]:
    """The session's ended turns before task `before`, the latest `limit`, oldest first."""
    rows = tx.q(
        "select t.id, t.state, t.detail, t.origin, c.content as transcript from tasks t "
        "left join checkpoints c on c.task_id = t.id and c.name = 'transcript' "
        "where t.session = :session and t.ended_at is not null and t.folded_into is null and t.id <> :before "
        "order by t.ended_at desc, t.id desc limit :limit",
        session=session,
        before=before,
        limit=limit,
    )
    return [_past(tx, row) for row in reversed(rows)]


def _past(tx: Tx, row: Row) -> Past:
    task_id, transcript, detail = row["id"], row["transcript"], row["detail"]
    return Past(
        row["state"],
        None if detail is None else tx.unseal("tasks.detail", task_id, detail),
        None if transcript is None else _opened(tx, task_id, "transcript", transcript),
        (sessions.opening(tx, task_id)[0] or None) if row["origin"] == "user" and row["state"] != "completed" else None,
    )


def end(
    tx: Tx,
    task_id: str,
    move: str,
    *,
    reason: str | None,
    detail: str | None,
    usage: Usage | None = None,
    folded_into: str | None = None,
) -> Task | None:
    """The guarded statement that ends a task; None if another was first. For `terminal.py` alone."""
    sums = "".join(f", {name} = :{name}" for name in vars(usage)) if usage else ""
    row = tx.one(
        "update tasks set state = :state, reason = :reason, detail = :detail, folded_into = :into, ended_at = :now, "
        f"revision = revision + 1{sums} where id = :id and state in {guard(TASK, move)} {_RETURNING}",
        id=task_id,
        state=target(TASK, move),
        reason=reason,
        detail=None if detail is None else tx.seal("tasks.detail", task_id, detail),
        into=folded_into,
        now=tx.now,
        **(vars(usage) if usage else {}),
    )
    if row is None:
        return None
    task = Task.of(row)
    journal.record(tx, task_id, task.revision, task.state)
    return task


@dataclass(frozen=True)
class Hangs:
    """What hangs on a task that is about to end, so that an end on which little hangs is short.

    `ceiling`: what may be kept of it; `unread`: a message waits for it; `steps`: it has checkpoints; `told`: ends of
    jobs are attached to it; `sent`: it has sent jobs out.
    """

    ceiling: str
    unread: bool
    steps: bool
    told: bool
    sent: bool


def hangs_on(tx: Tx, task_id: str) -> Hangs:
    (row,) = tx.q(
        "select ceiling, exists (select 1 from messages where task_id = :id and waits = 1) as unread, "
        "exists (select 1 from checkpoints where task_id = :id) as steps, "
        "exists (select 1 from deliveries where task_id = :id and state = 'attached') as told, "
        "exists (select 1 from batches where id = :id and closed_at is null) as sent from tasks where id = :id",
        id=task_id,
    )
    return Hangs(**dict(row))


def lower(tx: Tx, task_id: str, level: str) -> str | None:
    """Let a level have its say in a task's; the one that holds now, or None if it was as strict already."""
    held = ceiling_of(tx, task_id)
    now = ceilings.strictest(held, level)
    if now == held:
        return None
    tx.x("update tasks set ceiling = :ceiling where id = :id", ceiling=now, id=task_id)
    return now


def looser(tx: Tx, level: str, profile: str | None, others: list[str], limit: int) -> list[str]:
    """Tasks of a profile, or of all but `others`, of which more is kept than a level allows; `limit` at most."""
    which = "profile = :profile" if profile is not None else "profile not in (select value from json_each(:others))"
    higher = ceilings.LEVELS[: ceilings.LEVELS.index(level)]
    rows = tx.q(
        f"select id from tasks where {which} and ceiling in (select value from json_each(:higher)) limit :limit",
        profile=profile,
        others=json.dumps(others),
        higher=json.dumps(higher),
        limit=limit,
    )
    return [row["id"] for row in rows]


def attempts_at(tx: Tx, job_id: str) -> list[str]:
    """The tasks that have worked on a job, one an attempt."""
    rows = tx.q(
        "select t.id from sessions s join tasks t on t.session = s.uid where s.id = :session and t.cause = :job",
        session=f"{sessions.BACKGROUND}{job_id}",
        job=job_id,
    )
    return [row["id"] for row in rows]


def ceiling_of(tx: Tx, task_id: str) -> str:
    """The answer level that holds for a task now."""
    return tx.value("select ceiling from tasks where id = :id", id=task_id)


@dataclass(frozen=True)
class End:
    """How a task stands, and why it failed."""

    state: str
    reason: str | None
    detail: str | None


def ends(tx: Tx, task_ids: list[str]) -> dict[str, End]:
    """How these tasks stand, by task."""
    rows = tx.q(
        "select id, state, reason, detail from tasks where id in (select value from json_each(:ids))",
        ids=json.dumps(task_ids),
    )
    return {
        row["id"]: End(
            row["state"],
            row["reason"],
            None if row["detail"] is None else tx.unseal("tasks.detail", row["id"], row["detail"]),
        )
        for row in rows
    }


def waiting_nudges(tx: Tx, session: str) -> list[Task]:
    """The session's nudges that have not begun, oldest first; not one that was sent a message, which is a turn of its own."""
    rows = tx.q(
        f"{_SELECT} where t.session = :session and t.ended_at is null and t.origin = 'background-resume' "
        "and t.state = 'submitted' and not exists (select 1 from messages m where m.task_id = t.id and m.waits = 1) "
        "order by t.created_at, t.id",
        session=session,
    )
    return [Task.of(row) for row in rows]


def running(tx: Tx, session: str) -> Task | None:
    """The turn that is at work in a session, or None."""
    row = tx.one(f"{_SELECT} where t.session = :session and t.state = 'working'", session=session)
    return Task.of(row) if row else None


def ids_of_sessions(tx: Tx, uids: str) -> list[str]:
    """The tasks of these sessions (a JSON list of uids)."""
    rows = tx.q("select id from tasks where session in (select value from json_each(:uids))", uids=uids)
    return [row["id"] for row in rows]


def ended_before(tx: Tx, before: int, limit: int, *, profile: str | None, others: Collection[str] = ()) -> list[str]:
    """Turns that ended before a time, the oldest first: of one profile, or of all but some. A job's go with the job."""
    which = "profile = :profile" if profile is not None else "profile not in (select value from json_each(:others))"
    rows = tx.q(
        f"select id from tasks where ended_at < :before and origin <> 'background' and {which} order by ended_at limit :limit",
        before=before,
        limit=limit,
        profile=profile,
        others=json.dumps(list(others)),
    )
    return [row["id"] for row in rows]


def erase(tx: Tx, task_ids: str) -> None:
    """Take these tasks away (a JSON list of ids). For `retention.py`, which takes what hangs on them first."""
    mine = "where task_id in (select value from json_each(:ids))"
    tx.x(f"delete from checkpoints {mine}", ids=task_ids)
    tx.x(f"delete from receipts {mine}", ids=task_ids)
    tx.x("delete from tasks where id in (select value from json_each(:ids))", ids=task_ids)


def rewrite_checkpoints(tx: Tx, task_id: str, rewrite: Callable[[str], str]) -> None:
    """Change the texts, however deep in JSON, that a task's checkpoints hold."""
    for name, content in checkpoints(tx, task_id).items():
        if name.startswith("fold:"):  # what was taken up stands there as it was said
            changed = rewrite(content)
        else:
            changed = json.dumps(_rewritten(json.loads(content), rewrite), ensure_ascii=False)
        tx.x(
            "update checkpoints set content = :content where task_id = :task and name = :name",
            content=tx.seal("checkpoints.content", f"{task_id}/{name}", changed),
            task=task_id,
            name=name,
        )


def _rewritten(value: Any, rewrite: Callable[[str], str]) -> Any:
    match value:
        case str():
            return rewrite(value)
        case list():
            return [_rewritten(item, rewrite) for item in value]
        case dict():
            return {key: _rewritten(item, rewrite) for key, item in value.items()}
    return value


CARRIED = (
    "id", "profile", "origin", "cause", "state", "ceiling", "reason", "requests", "input_tokens", "output_tokens",
    "tool_calls", "created_at", "started_at", "ended_at",
)  # fmt: skip


def ended_of_session(tx: Tx, session: str) -> list[Row]:
    """The ended turns of a session, as a snapshot carries them, in order."""
    return tx.q(
        f"select {', '.join(CARRIED)} from tasks where session = :session and ended_at is not null "
        "and folded_into is null order by created_at, id",
        session=session,
    )


def texts_of(tx: Tx, task_id: str) -> tuple[str | None, str | None]:
    """Of an ended task: why it failed, for people, and the whole turn as its model saw it."""
    detail = ends(tx, [task_id])[task_id].detail
    return detail, checkpoints(tx, task_id).get("transcript")


def exists(tx: Tx, task_id: str) -> bool:
    """Whether an id is taken, whoever's it is: it is never given again."""
    return tx.one("select 1 from tasks where id = :id", id=task_id) is not None


def restore(
    tx: Tx,
    task_id: str,
    owner: str,
    session: str,
    carried: dict[str, Any],
    *,
    detail: str | None,
    transcript: str | None,
) -> None:
    """A turn that ended elsewhere, with its fields as a snapshot carries them (see `snapshot_shape.py`)."""
    names = [name for name in CARRIED if name != "id"]
    tx.x(
        f"insert into tasks (id, owner, session, revision, detail, {', '.join(names)}) "
        f"values (:id, :owner, :session, 1, :detail, {', '.join(f':{name}' for name in names)})",
        id=task_id,
        owner=owner,
        session=session,
        detail=None if detail is None else tx.seal("tasks.detail", task_id, detail),
        **{name: carried[name] for name in names},
    )
    if transcript is not None:
        _keep(tx, task_id, "transcript", transcript)
