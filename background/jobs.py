"""Jobs: work that somebody in a session waits for. Owns `jobs`; a job's delivery and batch have owners of their own.

A spawn is one transaction: the job, its batch, its `dispatch` run. A job ends by the road of `terminal.py` alone.
"""

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from background import batches, ceilings, delivery, events, questions, queue
from background.database import Row, Tx
from background.errors import Fault, not_found
from background.questions import Asked
from background.sessions import Session
from background.states import JOB, MOVE_TO, guard, target
from background.times import rfc3339, rfc3339_or_none
from background.usage import ADDED, Usage

STATUSES = tuple(JOB)  # what a client may ask for
QUESTION_CHARS = 300
NOT_STORABLE = "The answer level keeps no report, so nothing is sent out; nothing was stored."


@dataclass(frozen=True)
class Spec:
    """What to send out. `tools` are fixed here, for good; `plugin` is the one that sends it out, if one does."""

    description: str
    prompt: str
    subagent_type: str
    tools: tuple[str, ...]
    plugin: str | None = None

    @property
    def fingerprint(self) -> str:
        told = json.dumps([self.description, self.prompt, self.subagent_type])
        return hashlib.sha256(told.encode()).hexdigest()


@dataclass(frozen=True)
class Job:
    """A job with its present attempt's delivery; `requests` and the like are what all its attempts have cost.

    `model_calls` and `calls_of_tools` are its present attempt's alone.
    """

    id: str
    owner: str
    session: str
    session_id: str
    batch_id: str
    subagent_type: str
    description: str
    prompt: str
    tools: tuple[str, ...]
    attempts: int
    task_id: str | None
    status: str
    reason: str | None
    detail: str | None
    canceled_by: str | None
    partial: bool
    excerpt: str
    report_chars: int
    indexed: bool
    dismissed: bool
    erased: bool
    created_at: int
    started_at: int | None
    completed_at: int | None
    delivery: str
    delivery_task: str | None
    delivery_tries: int
    delivery_error: str | None
    notified_at: int | None
    question: Asked | None
    requests: int
    input_tokens: int
    output_tokens: int
    tool_calls: int
    parent: str | None
    depth: int
    model_calls: int
    calls_of_tools: int
    plugin: str | None

    @classmethod
    def of(cls, tx: Tx, row: Row) -> "Job":
        made = {**dict(row), "tools": tuple(json.loads(row["tools"]))}
        for flag in ("partial", "indexed", "dismissed", "erased"):
            made[flag] = bool(made[flag])
        for name in ("description", "prompt", "detail", "excerpt"):
            made[name] = None if row[name] is None else tx.unseal(f"jobs.{name}", row["id"], row[name])
        made["excerpt"] = made["excerpt"] or ""
        made["delivery_error"] = _delivery_error(tx, row)
        made["question"] = questions.current(tx, row["task_id"]) if row["status"] == "input_required" else None
        return cls(**{name: made[name] for name in cls.__dataclass_fields__})

    @property
    def ended(self) -> bool:
        return self.completed_at is not None

    @property
    def usage(self) -> Usage:
        """What it has cost, over all its attempts."""
        return Usage(self.requests, self.input_tokens, self.output_tokens, self.tool_calls)

    def public(self) -> dict[str, Any]:
        """JOB of the contract, without `prompt` and `report`."""
        return {
            "id": self.id,
            "session": self.session_id,
            "batch_id": self.batch_id,
            "subagent_type": self.subagent_type,
            "description": self.description,
            "status": self.status,
            "error": {"reason": self.reason, "message": self.detail} if self.reason else None,
            "partial": self.partial,
            "canceled_by": self.canceled_by,
            "note": self.detail if self.canceled_by else None,
            "task_id": self.task_id,
            "created_at": rfc3339(self.created_at),
            "started_at": rfc3339_or_none(self.started_at),
            "completed_at": rfc3339_or_none(self.completed_at),
            "notified": self.delivery == "delivered",
            "notified_at": rfc3339_or_none(self.notified_at),
            "notified_in": self.delivery_task if self.delivery == "delivered" else None,
            "delivery": {"state": self.delivery, "attempts": self.delivery_tries, "last_error": self.delivery_error},
            "indexed": self.indexed,
            "incognito": False,
            "deterministic": False,
            "dismissed": self.dismissed,
            "attempts": self.attempts,
            "usage": vars(self.usage),
            "report_chars": self.report_chars,
            "excerpt": self.excerpt,
            "question": self.question and questions.shown(self.question, QUESTION_CHARS),
            **({"parent": self.parent, "depth": self.depth} if self.parent else {}),  # only of what a job has sent out
            **({"plugin": self.plugin} if self.plugin else {}),  # only of what a plugin has sent out
            **({"erased": True} if self.erased else {}),  # its report is gone, and only then is this said
        }


def _delivery_error(tx: Tx, row: Row) -> str | None:
    """Why its end is not told yet, why its own post is not taken yet, or what its turn failed with and is to try again."""
    if row["last_error"] is not None:
        return tx.unseal("deliveries.last_error", f"{row['id']}/{row['attempts']}", row["last_error"])
    for error, key in (("post_error", "post_key"), ("work_error", "work_key")):
        if row[error] is not None:
            return tx.unseal("runs.last_error", row[key], row[error])
    return None


_SELECT = (
    "select j.*, s.id as session_id, coalesce(d.state, 'none') as delivery, d.task_id as delivery_task, "
    "coalesce(d.tries, r.tries, w.tries, 0) as delivery_tries, d.last_error, r.last_error as post_error, r.key as post_key, "
    "w.last_error as work_error, w.key as work_key, d.notified_at, "
    "coalesce(t.requests, 0) as model_calls, coalesce(t.tool_calls, 0) as calls_of_tools from jobs j "
    "join sessions s on s.uid = j.session left join tasks t on t.id = j.task_id "
    "left join deliveries d on d.job_id = j.id and d.attempt = j.attempts "
    # Until it is dispatched it is its own post that is tried, and may say why it waits.
    "left join runs r on r.key = 'dispatch:' || j.id || ':' || j.attempts and r.ended_at is null and r.last_error is not null "
    # Then it is its turn: what that failed with is said until it has come a step further.
    "left join runs w on w.task_id = j.task_id and w.ended_at is null and w.kind in ('turn', 'job') and w.last_error is not null "
    "and (w.state = 'queued' or w.tries > 1)"
)


def by_id(tx: Tx, job_id: str) -> Job:
    row = tx.one(f"{_SELECT} where j.id = :id", id=job_id)
    assert row is not None, job_id
    return Job.of(tx, row)


def known(tx: Tx, job_id: str) -> Job | None:
    """The job, whoever's it is, or None for one that was erased."""
    row = tx.one(f"{_SELECT} where j.id = :id", id=job_id)
    return Job.of(tx, row) if row else None


def find(tx: Tx, owner: str, job_id: str) -> Job | None:
    """The owner's job, or None; another's does not exist."""
    row = tx.one(f"{_SELECT} where j.id = :id and j.owner = :owner", id=job_id, owner=owner)
    return Job.of(tx, row) if row else None


def get(tx: Tx, owner: str, job_id: str) -> Job:
    """The owner's job. Raises a `not_found` fault."""
    job = find(tx, owner, job_id)
    if job is None:
        raise not_found("job")
    return job


def first_of(tx: Tx, session_uid: str) -> str:
    """What the first job of a session is called; empty where it has none."""
    row = tx.one(
        "select id, description from jobs where session = :session order by created_at, id limit 1", session=session_uid
    )
    return "" if row is None else tx.unseal("jobs.description", row["id"], row["description"])


def of_batch(tx: Tx, batch_id: str) -> list[Job]:
    """The jobs that are members of a batch, oldest first."""
    return [
        Job.of(tx, row)
        for row in tx.q(
            f"{_SELECT} where j.id in (select job_id from members where batch_id = :batch) order by j.created_at, j.id",
            batch=batch_id,
        )
    ]


def page(
    tx: Tx,
    owner: str,
    *,
    limit: int,
    session: str | None = None,
    status: str | None = None,
    batch: str | None = None,
    dismissed: bool | None = False,
    before: tuple[int, str] | None = None,
) -> list[Job]:
    """The owner's jobs, newest first. `dismissed` None asks for both; `before` is the last (created_at, id) seen."""
    wheres = ["j.owner = :owner"]
    wheres += (
        ["j.session = (select uid from sessions where owner = :owner and id = :session)"] if session is not None else []
    )
    wheres += ["j.status = :status"] if status is not None else []
    wheres += ["j.batch_id = :batch"] if batch is not None else []
    wheres += ["j.dismissed = :dismissed"] if dismissed is not None else []
    wheres += ["(j.created_at, j.id) < (:at, :id)"] if before else []
    at, last = before or (0, "")
    rows = tx.q(
        f"{_SELECT} where {' and '.join(wheres)} order by j.created_at desc, j.id desc limit :limit",
        owner=owner,
        session=session,
        status=status,
        batch=batch,
        dismissed=dismissed,
        at=at,
        id=last,
        limit=limit,
    )
    return [Job.of(tx, row) for row in rows]


def of_session(tx: Tx, session: str, *, running: bool) -> list[Job]:
    """A session's jobs that have not ended, or all of them, oldest first."""
    narrow = "and j.completed_at is null" if running else ""
    return [
        Job.of(tx, row)
        for row in tx.q(f"{_SELECT} where j.session = :session {narrow} order by j.created_at, j.id", session=session)
    ]


def spawn(
    tx: Tx,
    session: Session,
    batch_id: str,
    specs: Sequence[tuple[str, Spec]],
    *,
    closed: bool,
    level: str = "full",
    parent: str | None = None,
    depth: int = 1,
) -> list[Job]:
    """Send out jobs as one batch, all or none; each comes with its key, and a key that is there is the job it made.

    `level` is the answer level at which they are kept; `parent` the job that sends them out. Raises a `conflict` fault for a key with another prompt, a
    `limit` fault (`QUEUE_LIMIT`) over the queue's bound, and `refused` (`RESULT_NOT_STORABLE`) where nothing may be kept.
    """
    if len({key for key, _ in specs}) < len(specs):
        raise Fault("invalid", "Two jobs of one list have the same key.", field="key")
    found = [_existing(tx, session, key, spec) for key, spec in specs]
    fresh = [pair for pair, job in zip(specs, found, strict=True) if job is None]
    if fresh:
        if not ceilings.can_keep(level):
            raise Fault("refused", NOT_STORABLE, reason="RESULT_NOT_STORABLE", level=level)
        _check_room(tx, session.owner, len(fresh))
        _check_quota(tx, session.owner, [spec.plugin for _, spec in fresh])
        batches.open_batch(tx, batch_id, session.owner, session.uid, closed=closed)
    # A microsecond apart, so that they stand, start and are listed in the order in which they were asked for.
    made = iter(
        [
            _insert(tx, session, batch_id, key, spec, level, tx.now + place, parent, depth)
            for place, (key, spec) in enumerate(fresh)
        ]
    )
    return [job or next(made) for job in found]


def has_key(tx: Tx, owner: str, key: str) -> bool:
    """Whether the owner has a job of this key."""
    return tx.one("select 1 from jobs where owner = :owner and key = :key", owner=owner, key=key) is not None


def children(tx: Tx, job_id: str) -> list[Job]:
    """The jobs that a job has sent out and that have not ended, oldest first."""
    rows = tx.q(f"{_SELECT} where j.parent = :id and j.completed_at is null order by j.created_at, j.id", id=job_id)
    return [Job.of(tx, row) for row in rows]


def _existing(tx: Tx, session: Session, key: str, spec: Spec) -> Job | None:
    row = tx.one(
        "select id, fingerprint, session from jobs where owner = :owner and key = :key", owner=session.owner, key=key
    )
    if row is None:
        return None
    if (row["fingerprint"], row["session"]) != (spec.fingerprint, session.uid):
        raise Fault("conflict", "This key was used for another job.", key=key.removeprefix("api:"))
    return by_id(tx, row["id"])


def _check_room(tx: Tx, owner: str, wanted: int) -> None:
    waiting = tx.value("select count(*) from jobs where owner = :owner and status = 'queued'", owner=owner)
    if waiting + wanted > tx.limits.max_queued_jobs:
        raise Fault(
            "limit",
            f"{waiting} of your jobs wait already and {wanted} more would pass the limit of {tx.limits.max_queued_jobs}; "
            "nothing was sent out.",
            reason="QUEUE_LIMIT",
            limit=tx.limits.max_queued_jobs,
        )


def _check_quota(tx: Tx, owner: str, wanted: Sequence[str | None]) -> None:
    """What a plugin may have waiting of a user's, within what the user may."""
    for plugin, most in tx.limits.max_queued_of_plugins.items():
        if plugin not in wanted:
            continue
        waiting = tx.value(
            "select count(*) from jobs where owner = :owner and status = 'queued' and plugin = :plugin",
            owner=owner,
            plugin=plugin,
        )
        if waiting + wanted.count(plugin) > most:
            raise Fault(
                "limit",
                f"{waiting} jobs that the plugin {plugin} has sent out for you wait already and {wanted.count(plugin)} more "
                f"would pass its limit of {most}; nothing was sent out.",
                reason="QUEUE_LIMIT",
                limit=most,
                plugin=plugin,
            )


def _insert(
    tx: Tx,
    session: Session,
    batch_id: str,
    key: str,
    spec: Spec,
    level: str,
    at: int,
    parent: str | None,
    depth: int,
) -> Job:
    job_id = f"bg-{secrets.token_hex(6)}"
    tx.x(
        "insert into jobs (id, plugin, owner, session, batch_id, key, fingerprint, subagent_type, description, prompt, tools, "
        "status, created_at, parent, depth) values (:id, :plugin, :owner, :session, :batch, :key, :fingerprint, :type, "
        ":description, :prompt, :tools, 'queued', :now, :parent, :depth)",
        id=job_id,
        owner=session.owner,
        session=session.uid,
        batch=batch_id,
        key=key,
        fingerprint=spec.fingerprint,
        type=spec.subagent_type,
        plugin=spec.plugin,
        description=tx.seal("jobs.description", job_id, ceilings.keep(level, spec.description, tx.redact)),
        prompt=tx.seal("jobs.prompt", job_id, ceilings.keep(level, spec.prompt, tx.redact)),
        tools=json.dumps(spec.tools),
        now=at,
        parent=parent,
        depth=depth,
    )
    return _sent_out(tx, job_id, batch_id, attempt=1)


def _sent_out(tx: Tx, job_id: str, batch_id: str, attempt: int) -> Job:
    batches.add(tx, batch_id, job_id, attempt)
    queue.enqueue(
        tx,
        "dispatch",
        f"dispatch:{job_id}:{attempt}",
        lane=f"dispatch:{batch_id}",
        params={"job": job_id, "attempt": attempt},
    )
    return tell(tx, job_id, "background.queued")


def tell(tx: Tx, job_id: str, name: str) -> Job:
    """Publish the job as it is now."""
    job = by_id(tx, job_id)
    events.emit(tx, job.owner, job.session, name, job.public())
    return job


def dispatched(tx: Tx, job_id: str, task_id: str) -> bool:
    """The post of the present attempt was accepted as this task."""
    return bool(
        tx.x(
            "update jobs set task_id = :task where id = :id and task_id is null and status = 'queued'",
            task=task_id,
            id=job_id,
        )
    )


def begin(tx: Tx, task_id: str) -> None:
    """The job's task begins, if this is a job's task."""
    row = tx.one(
        f"update jobs set status = 'running', started_at = :now where task_id = :task and status in {guard(JOB, 'begin')} returning id",
        task=task_id,
        now=tx.now,
    )
    if row:
        tell(tx, row["id"], "background.started")


def parked(tx: Tx, task_id: str) -> None:
    """The job's task waits for an answer."""
    _moved(tx, task_id, "park")


def answered(tx: Tx, task_id: str) -> None:
    """The job's task goes on."""
    _moved(tx, task_id, "answer")


def _moved(tx: Tx, task_id: str, move: str) -> None:
    """At work or parked: either is told as `background.started`, and the job in it says which."""
    row = tx.one(
        f"update jobs set status = :status where task_id = :task and status in {guard(JOB, move)} returning id",
        status=target(JOB, move),
        task=task_id,
    )
    if row:
        tell(tx, row["id"], "background.started")


@dataclass(frozen=True)
class JobEnd:
    """How a job ends: `status`, and what comes with it."""

    status: str
    reason: str | None = None
    detail: str | None = None
    canceled_by: str | None = None
    partial: bool = False
    excerpt: str = ""
    report_chars: int = 0


def end(tx: Tx, job_id: str, task_id: str | None, how: JobEnd) -> bool:
    """End the job's present attempt, which runs as `task_id`; False if it has ended or another attempt runs.

    What follows is in the same commit: its delivery, its batch, its `report` run, its event.
    """
    row = tx.one(
        "update jobs set status = :status, reason = :reason, detail = :detail, canceled_by = :by, partial = :partial, "
        "excerpt = :excerpt, report_chars = :chars, completed_at = :now where id = :id and task_id is :task "
        f"and status in {guard(JOB, MOVE_TO[how.status])} returning batch_id, attempts, session",
        id=job_id,
        task=task_id,
        status=how.status,
        reason=how.reason,
        detail=None if how.detail is None else tx.seal("jobs.detail", job_id, how.detail),
        by=how.canceled_by,
        partial=how.partial,
        excerpt=tx.seal("jobs.excerpt", job_id, how.excerpt) if how.excerpt else None,
        chars=how.report_chars,
        now=tx.now,
    )
    if row is None:
        return False
    delivery.pending(tx, job_id, row["attempts"], row["session"])
    batches.member_ended(tx, row["batch_id"], job_id, row["attempts"], how.status)
    queue.enqueue(
        tx, "report", f"report:{job_id}:{row['attempts']}", params={"job": job_id, "attempt": row["attempts"]}
    )
    tell(tx, job_id, "background.completed")
    return True


def report_done(tx: Tx, job_id: str, attempt: int) -> None:
    """The report run of an attempt is through: it may be told, and its batch may be complete."""
    batch_id = tx.value(
        "select batch_id from members where job_id = :job and attempt = :attempt", job=job_id, attempt=attempt
    )
    if delivery.ready(tx, job_id, attempt):
        batches.check(tx, batch_id)


def indexed(tx: Tx, job_id: str, attempt: int) -> None:
    """The attempt's report stands in the knowledge store."""
    tx.x("update jobs set indexed = 1 where id = :id and attempts = :attempt", id=job_id, attempt=attempt)


def spend(tx: Tx, job_id: str, usage: Usage) -> None:
    """Its model calls have cost so much more. For `expenses.py` alone."""
    tx.x(f"update jobs set {ADDED} where id = :id", id=job_id, **vars(usage))


def not_kept(tx: Tx, task_id: str) -> None:
    """Nothing of what came of the job's task is kept: no report, no excerpt, no words about its failure."""
    tx.x(
        "update jobs set excerpt = null, detail = null, report_chars = 0, partial = 0, indexed = 0 where task_id = :task",
        task=task_id,
    )


def not_dispatched(tx: Tx) -> list[Job]:
    """Jobs that programs have sent out and no task works on yet, whoever's they are."""
    rows = tx.q(f"{_SELECT} where j.status = 'queued' and j.task_id is null and j.key not like 'step:%'")
    return [Job.of(tx, row) for row in rows]


def sent_by_a_turn(tx: Tx, job_id: str) -> bool:
    """Whether a step of a turn sent it out, and not a program."""
    key = tx.value("select key from jobs where id = :id", id=job_id)
    return key is not None and key.startswith("step:")


def sent_by(tx: Tx, owner: str, task_id: str) -> list[Job]:
    """The jobs that a turn's own steps sent out."""
    rows = tx.q(
        f"{_SELECT} where j.owner = :owner and j.key >= :first and j.key < :last",
        owner=owner,
        first=f"step:{task_id}:",
        last=f"step:{task_id};",
    )
    return [Job.of(tx, row) for row in rows]


def retry(tx: Tx, owner: str, job_id: str) -> Job:
    """A new attempt of an ended job, with the stored prompt, in a batch of its own. Raises `not_found`, `conflict`, `limit`."""
    job = get(tx, owner, job_id)
    if not job.ended:
        raise Fault("conflict", f"The job is {job.status}; only an ended job can be retried.", status=job.status)
    if job.delivery == "attached":
        raise Fault(
            "conflict", "A turn is telling of this job just now; retry it when that has ended.", status=job.status
        )
    if not job.prompt:
        raise Fault("conflict", "What it was to do is not kept any more; send it out anew.", status=job.status)
    _check_room(tx, owner, 1)
    batch_id = f"{job_id}:{job.attempts + 1}"
    delivery.drop(tx, job_id, job.attempts, "Retried before it was told.")
    batches.withdraw(tx, job_id, job.attempts)
    batches.open_batch(tx, batch_id, owner, job.session, closed=True)
    tx.x(
        "update jobs set status = 'queued', attempts = attempts + 1, batch_id = :batch, task_id = null, reason = null, "
        "detail = null, canceled_by = null, partial = 0, excerpt = null, report_chars = 0, indexed = 0, dismissed = 0, erased = 0, "
        f"started_at = null, completed_at = null where id = :id and status in {guard(JOB, 'retry')}",
        id=job_id,
        batch=batch_id,
    )
    return _sent_out(tx, job_id, batch_id, job.attempts + 1)


def dismiss(tx: Tx, owner: str, job_id: str) -> Job:
    """Hide an ended job from the panel. Raises `not_found` and `conflict` faults."""
    job = get(tx, owner, job_id)
    if not job.ended:
        raise Fault("conflict", f"The job is {job.status}; only an ended job can be dismissed.", status=job.status)
    tx.x("update jobs set dismissed = 1 where id = :id", id=job_id)
    return by_id(tx, job_id)


def sent_from(tx: Tx, session: str | None, cause: str) -> bool:
    """Whether this session (a uid) has sent out a job or a batch of this id."""
    sql = "select 1 from {} where id = :cause and session = :session"
    return any(tx.one(sql.format(table), cause=cause, session=session) for table in ("jobs", "batches"))


def ids_of_sessions(tx: Tx, uids: str) -> list[str]:
    """The jobs that these sessions (a JSON list of uids) sent out."""
    rows = tx.q("select id from jobs where session in (select value from json_each(:uids))", uids=uids)
    return [row["id"] for row in rows]


def ended_before(tx: Tx, told: int, untold: int, limit: int) -> list[str]:
    """Jobs that ended before a time: `told` where nobody waits to be told, `untold` for the rest; the oldest first."""
    rows = tx.q(
        "select j.id from jobs j left join deliveries d on d.job_id = j.id and d.attempt = j.attempts "
        "where j.completed_at < :told and (coalesce(d.state, '') in ('delivered', 'undeliverable') or "
        "j.completed_at < :untold) and coalesce(d.state, '') <> 'attached' order by j.completed_at limit :limit",
        told=told,
        untold=untold,
        limit=limit,
    )
    return [row["id"] for row in rows]


def erase(tx: Tx, job_ids: str) -> None:
    """Take these jobs away (a JSON list of ids). For `retention.py`, which takes what hangs on them first."""
    tx.x("delete from jobs where id in (select value from json_each(:ids))", ids=job_ids)


def scrub(tx: Tx, job_id: str) -> None:
    """The report is erased: what of it stood here is gone, and the job says so."""
    tx.x(
        "update jobs set excerpt = null, report_chars = 0, indexed = 0, partial = 0, erased = 1 where id = :id",
        id=job_id,
    )


def by_owner(tx: Tx, job_ids: list[str]) -> dict[str, list[str]]:
    """These jobs, by whose they are."""
    found: dict[str, list[str]] = {}
    ids = json.dumps(job_ids)
    for row in tx.q("select id, owner from jobs where id in (select value from json_each(:ids))", ids=ids):
        found.setdefault(row["owner"], []).append(row["id"])
    return found
