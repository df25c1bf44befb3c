"""Tasks: their rows, and how one begins and comes along. Owns `tasks`.

How one is made by a message stands in `acceptance.py`, how it ends in `terminal.py`.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from background import (
    ceilings,
    checkpoints,
    events,
    ids,
    jobs,
    journal,
    masked,
    questions,
    queue,
    sessions,
    steps,
)
from background.database import Row, Tx
from background.questions import Asked, Question
from background.queue import Run
from background.states import TASK, guard, target
from background.usage import ADDED, SUMS, Usage


@dataclass(frozen=True)
class Task:
    """A task's row, with its session's id, and whether that is incognito."""

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
    incognito: bool

    @classmethod
    def of(cls, row: Row) -> "Task":
        made = {name: row[name] for name in cls.__dataclass_fields__}
        return cls(**{**made, "incognito": bool(row["incognito"])})


_SELECT = "select t.*, s.id as session_id, s.incognito from tasks t join sessions s on s.uid = t.session"


_OF_SESSION = "(select {} from sessions where uid = tasks.session) as {}"


_RETURNING = f"returning *, {_OF_SESSION.format('id', 'session_id')}, {_OF_SESSION.format('incognito', 'incognito')}"


def make(
    tx: Tx,
    *,
    owner: str,
    session: str,
    profile: str,
    origin: str,
    cause: str | None,
    ceiling: str,
    initiated_by: str | None = None,
    steers: str | None = None,
) -> str:
    """A new task, submitted. Returns its id. For `acceptance.py` alone."""
    task_id = str(ids.uuid7())
    tx.x(
        "insert into tasks (id, owner, session, profile, origin, cause, state, ceiling, initiated_by, steers, created_at) "
        "values (:id, :owner, :session, :profile, :origin, :cause, 'submitted', :ceiling, :initiated_by, :steers, :now)",
        id=task_id,
        owner=owner,
        session=session,
        profile=profile,
        origin=origin,
        cause=cause,
        ceiling=ceiling,
        initiated_by=initiated_by,
        steers=steers,
        now=tx.now,
    )
    return task_id


def answer(tx: Tx, task_id: str) -> int:
    """A parked task is at work again. Returns its revision. For `acceptance.py` alone."""
    row = tx.one(
        f"update tasks set state = 'working', revision = revision + 1 where id = :id and state in {guard(TASK, 'answer')} "
        "returning revision",
        id=task_id,
    )
    assert row is not None, task_id
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
    """A `turn.*` event of this task; of an incognito session without what was asked."""
    data = {"session": task.session_id, "task_id": task.id, "origin": task.origin, "trigger": task.cause}
    if task.incognito:
        more = {name: value for name, value in more.items() if name != "question"}
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


def checkpoint(tx: Tx, run: Run, name: str, content: str, facts: Mapping[str, Any] | None = None) -> str:
    """Keep how far the turn has come; the first write of a name wins, and the lease moves on. Raises `LeaseLost`.

    `facts` are what may be told of the step, at any level. Returns the task's answer level, at which it was kept.
    """
    queue.progress(tx, run)
    level = ceiling_of(tx, run.task_id or "")
    kept = ceilings.keep_json(level, content, tx.redact)
    checkpoints.keep(tx, run.task_id or "", name, kept)
    if name.startswith(masked.ANSWER) and kept != content:
        masked.mark(tx, run.task_id or "", {name: content})
    steps.note(tx, run.task_id or "", name, facts or {})
    return level


def spend(tx: Tx, task_id: str, usage: Usage) -> None:
    """Its model calls have cost so much more. For `expenses.py` alone."""
    tx.x(f"update tasks set {ADDED} where id = :id", id=task_id, **vars(usage))


def has_read(tx: Tx, task_id: str, tier: int) -> None:
    """Its model is given something of this tier of trust: what it answers is made of that too."""
    tx.x("update tasks set made_of = min(coalesce(made_of, :tier), :tier) where id = :id", id=task_id, tier=tier)


def made_of(tx: Tx, task_id: str) -> int | None:
    """The lowest tier of trust of what it has read; None where that was nothing."""
    return tx.value("select made_of from tasks where id = :id", id=task_id)


def usage_of(tx: Tx, task_id: str) -> Usage:
    """What a turn has cost so far; of one that is gone, nothing."""
    row = tx.one(f"select {', '.join(SUMS)} from tasks where id = :id", id=task_id)
    return Usage(*row) if row else Usage()


def scrub(tx: Tx, task_id: str) -> None:
    """Nothing of how far the turn came is kept, nor of why it failed beyond its reason."""
    checkpoints.drop(tx, task_id)
    tx.x("update tasks set detail = null where id = :task and reason is null", task=task_id)


def end(
    tx: Tx,
    task_id: str,
    move: str,
    *,
    reason: str | None,
    detail: str | None,
    folded_into: str | None = None,
) -> Task | None:
    """The guarded statement that ends a task; None if another was first. For `terminal.py` alone."""
    row = tx.one(
        "update tasks set state = :state, reason = :reason, detail = :detail, folded_into = :into, ended_at = :now, "
        f"revision = revision + 1 where id = :id and state in {guard(TASK, move)} {_RETURNING}",
        id=task_id,
        state=target(TASK, move),
        reason=reason,
        detail=None if detail is None else tx.seal("tasks.detail", task_id, detail),
        into=folded_into,
        now=tx.now,
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
    rows = tx.q(
        f"select id from tasks where {which} and ceiling in (select value from json_each(:higher)) limit :limit",
        profile=profile,
        others=json.dumps(others),
        higher=json.dumps(ceilings.above(level)),
        limit=limit,
    )
    return [row["id"] for row in rows]


def attempts_at(tx: Tx, job_id: str) -> list[str]:
    """The tasks that have worked on a job, one an attempt."""
    rows = tx.q(
        "select t.id from jobs j join sessions s on s.owner = j.owner and s.id = :session "
        "join tasks t on t.session = s.uid where j.id = :job and t.cause = :job",
        session=f"{sessions.BACKGROUND}{job_id}",
        job=job_id,
    )
    return [row["id"] for row in rows]


def job_in(tx: Tx, session: str) -> str | None:
    """The job that works in a background session, or None where nothing has begun there."""
    return tx.value(
        "select cause from tasks where session = :session and origin = 'background' limit 1", session=session
    )


def ceiling_of(tx: Tx, task_id: str) -> str:
    """The answer level that holds for a task now."""
    return tx.value("select ceiling from tasks where id = :id", id=task_id)


@dataclass(frozen=True)
class End:
    """How a task stands, why it failed, and when it ended."""

    state: str
    reason: str | None
    detail: str | None
    at: int | None


def ends(tx: Tx, task_ids: list[str]) -> dict[str, End]:
    """How these tasks stand, by task."""
    rows = tx.q(
        "select id, state, reason, detail, ended_at from tasks where id in (select value from json_each(:ids))",
        ids=json.dumps(task_ids),
    )
    return {
        row["id"]: End(
            row["state"],
            row["reason"],
            None if row["detail"] is None else tx.unseal("tasks.detail", row["id"], row["detail"]),
            row["ended_at"],
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
    """Turns that ended before a time, the oldest first: of one profile, or of all but some. A job's go with the job.

    Those of a session whose facts are to be harvested yet are kept until that is done, or given up.
    """
    which = "profile = :profile" if profile is not None else "profile not in (select value from json_each(:others))"
    rows = tx.q(
        f"select id from tasks where ended_at < :before and origin <> 'background' and {which} and not exists (select 1 from runs "
        "where lane = 'memory:' || tasks.session and kind = 'harvest' and ended_at is null) order by ended_at limit :limit",
        before=before,
        limit=limit,
        profile=profile,
        others=json.dumps(list(others)),
    )
    return [row["id"] for row in rows]


def erase(tx: Tx, task_ids: str) -> None:
    """Take these tasks away (a JSON list of ids). For `retention.py`, which takes what hangs on them first."""
    tx.x("delete from tasks where id in (select value from json_each(:ids))", ids=task_ids)


CARRIED = (
    "id", "profile", "origin", "cause", "state", "ceiling", "reason", "requests", "input_tokens", "output_tokens",
    "tool_calls", "created_at", "started_at", "ended_at", "made_of",
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
    return detail, checkpoints.of_task(tx, task_id).get("transcript")


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
        checkpoints.keep(tx, task_id, "transcript", transcript)
