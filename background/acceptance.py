"""Acceptance: how a message becomes a task, an answer, or more for a task at work. Owns `receipts`.

It is one transaction, or nothing; it never runs anything. A message id is taken once, for as long as its task is there.
"""

from dataclasses import dataclass, replace
from typing import Any

from background import (
    ceilings,
    checkpoints,
    job_rows,
    jobs,
    journal,
    messages,
    questions,
    queue,
    sessions,
    steering,
    tasks,
)
from background.database import Tx
from background.errors import Fault, not_found
from background.questions import Answer, Asked
from background.sessions import Session
from background.tasks import Task

INITIATED_BY = "initiated_by"  # in the metadata of a message or task: who sent it into another's session
NO_WORKER = "No worker is live, so nothing would run; nothing was stored."
NOT_STORABLE = "The answer level of this profile keeps no result, so nothing is begun; nothing was stored."


@dataclass(frozen=True)
class Incoming:
    """A message to be accepted. `origin` and `cause` come from the sender's credential, never from the message.

    `ceiling` is the level that installation and profile allow; `max_open` the profile's own limit of open tasks. For an
    answer: `data` is its first data part, `question` the digest of the question that it was made for, if it says so.
    What is sent by a share is taken `within` the session of that uid alone; `sender` is who sent it, where that is not
    the owner. One that `steer`s is to be taken up by the turn at work in its session, if there is one.
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
    sender: str | None = None
    within: str | None = None
    steer: bool = False

    @property
    def receiver(self) -> str:
        """In whose name its id is taken: what the owner sent elsewhere is not told to whoever sends into one session."""
        return f"{self.owner}/{self.sender}" if self.sender else self.owner


@dataclass(frozen=True)
class Accepted:
    """The task that a message made or answered, and the revision that came of it; `new` is False for one that came before."""

    task_id: str
    new: bool
    revision: int = 1


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
    message = _signed(message)
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
        "from (select 1) left join receipts r on r.owner = :receiver and r.message_id = :message "
        "left join sessions s on s.owner = :owner and s.id = :session",
        owner=message.owner,
        receiver=message.receiver,
        message=message.message_id,
        session=message.session_id,
    )
    session = None if row["uid"] is None else Session.of(row)
    return _Known(row["fingerprint"], row["made"], row["heard_at"], session)


def _signed(message: Incoming) -> Incoming:
    """The message with who sent it, where that is not the owner; no client can write that itself."""
    if message.sender is None:
        return message
    metadata = message.content.get("metadata", {}) | {INITIATED_BY: message.sender}
    return replace(message, content=message.content | {"metadata": metadata})


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
    _require_within(message, session and session.uid)
    background = message.origin == "background"
    kind = "background" if background else "chat"
    user = message.origin == "user"
    if message.origin == "background-resume" and not job_rows.sent_from(
        tx, session and session.uid, message.cause or ""
    ):
        raise Fault("conflict", "What this would tell of is gone.")  # it was erased after the post had been made
    if session is None:
        said = message.text if user else ""
        incognito = background and job_rows.is_incognito(tx, message.cause or "")
        session = sessions.make(tx, message.owner, message.session_id, kind, said, incognito=incognito)
    elif session.kind != kind:
        raise sessions.another_kind(session)
    elif user:
        sessions.heard_from_user(tx, session, message.text)
    task_id = tasks.make(
        tx,
        owner=message.owner,
        session=session.uid,
        profile=message.profile,
        origin=message.origin,
        cause=message.cause,
        ceiling=message.ceiling,
        initiated_by=message.sender,
        steers=steering.target(tx, session.uid, message.profile) if message.steer else None,
    )
    _receive(tx, message, task_id)
    nudge = message.origin == "background-resume"
    messages.log(tx, session.uid, "nudge" if nudge else "user", message.text, task_id=task_id, content=message.content)
    listed = not (background or session.incognito)
    journal.begin(tx, task_id, message.owner, session.uid, listed=listed)
    queue.enqueue(
        tx, "job" if background else "turn", f"turn:{task_id}", lane=f"session:{session.uid}", task_id=task_id
    )
    if background and not jobs.dispatched(tx, message.cause or "", task_id):
        raise Fault("conflict", "The job has ended, or was dispatched before.")
    return task_id


def _require_within(message: Incoming, session: str | None) -> None:
    """The session may have gone since the share was shown, and one of the same id been made."""
    if message.within not in (None, session):
        raise not_found("session")


def _receive(tx: Tx, message: Incoming, task_id: str) -> None:
    tx.x(
        "insert into receipts values (:receiver, :message_id, :fingerprint, :task)",
        receiver=message.receiver,
        message_id=message.message_id,
        fingerprint=message.fingerprint,
        task=task_id,
    )


def _accept_reply(tx: Tx, message: Incoming, known: _Known) -> Accepted:
    """A message to a task: the answer of a parked one, more to take up for one at work. One that has ended takes none."""
    task = tasks.find(tx, message.owner, message.task_id or "")
    if task is None:
        raise not_found("task")
    _require_within(message, task.session)
    if task.state in journal.ENDS:
        raise Fault("refused", "This task has ended; send the message without a task id.", task=task.id)
    asked = questions.current(tx, task.id)
    if asked is None:
        questions.require_none(message.question)
        _require_heard(tx, known.heard_at)
        _receive(tx, message, task.id)
        return Accepted(task.id, True, _add(tx, task, _kept(tx, message, task.ceiling)))
    questions.require_one_form(asked, message.content.get("parts", ()))
    answer = questions.check(asked, message.text, message.data, message.question)
    questions.require_open(tx, asked, set(checkpoints.names(tx, task.id)))
    _require_heard(tx, known.heard_at)
    _receive(tx, message, task.id)
    return Accepted(task.id, True, _answer(tx, task, asked, _kept(tx, message, task.ceiling), answer))


def _add(tx: Tx, task: Task, message: Incoming) -> int:
    """The message stands in the task's history, and the task does not end before it has taken it up."""
    messages.log(tx, task.session, "user", message.text, task_id=task.id, content=message.content, waits=True)
    _heard_from_user(tx, task, message.text)
    return task.revision


def _heard_from_user(tx: Tx, task: Task, text: str) -> None:
    if task.origin != "background":  # a job's own session has no user
        sessions.heard_from_user(tx, sessions.by_uid(tx, task.session), text)


def _answer(tx: Tx, task: Task, asked: Asked, message: Incoming, answer: Answer) -> int:
    """The task goes on from the step that asked, as the next run in its session's lane. Returns its revision."""
    revision = tasks.answer(tx, task.id)
    questions.answered(tx, task.id, asked)
    messages.log(tx, task.session, "user", message.text, task_id=task.id, content=message.content)
    _heard_from_user(tx, task, message.text)
    kept = replace(
        answer,
        text=ceilings.keep(task.ceiling, answer.text, tx.redact),
        data=ceilings.keep_json(task.ceiling, answer.data, tx.redact),
    )
    checkpoints.keep(tx, task.id, f"answer:{asked.key}", kept.stored)
    journal.record(tx, task.id, revision, "working")
    queue.cancel_key(tx, f"expire:{task.id}:{asked.revision}")
    queue.go_on(tx, asked.run_id, f"turn:{task.id}:{revision}")
    if task.origin == "background":
        jobs.answered(tx, task.id)
    else:
        tasks.emit_turn(tx, task, "turn.started")
    return revision


def forget(tx: Tx, task_ids: str) -> None:
    """Take away the receipts of these tasks (a JSON list of ids): their message ids may be used again."""
    tx.x("delete from receipts where task_id in (select value from json_each(:ids))", ids=task_ids)
