"""Jobs: work that somebody in a session waits for, and all that happens to one. Owns `jobs`; `job_rows.py` reads them.

A spawn is one transaction: the job, its batch, its `dispatch` run. A job ends by the road of `terminal.py` alone.
Its delivery and batch have owners of their own.
"""

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from background import batches, ceilings, delivery, events, job_rows, queue
from background.database import Tx
from background.errors import Fault
from background.job_rows import Job
from background.sessions import Session
from background.states import JOB, MOVE_TO, guard, target
from background.usage import ADDED, Usage

NOT_STORABLE = "The answer level keeps no report, so nothing is sent out; nothing was stored."
MASKED = (
    "The answer level masks what stands in these arguments, and the work would be done with others; nothing was stored."
)


@dataclass(frozen=True)
class Spec:
    """What to send out. `tools` are fixed here, for good; `plugin` is the one that sends it out, if one does. Of a
    `deterministic` one `subagent_type` is the kind of its work, and `prompt` its arguments as JSON.

    `made_of` is the lowest tier of trust of what its sender had read by then, if that is known. `level` is the most that is
    kept of it, whoever sends it out.
    """

    description: str
    prompt: str
    subagent_type: str
    tools: tuple[str, ...]
    plugin: str | None = None
    incognito: bool = False
    made_of: int | None = None
    level: str = "full"
    deterministic: bool = False

    @property
    def fingerprint(self) -> str:
        marks = [name for name in ("incognito", "deterministic") if getattr(self, name)]
        told = json.dumps([self.description, self.prompt, self.subagent_type, *marks])
        return hashlib.sha256(told.encode()).hexdigest()


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

    `level` is the answer level at which they are kept; `parent` the job that sends them out; those of an incognito session
    are incognito. Raises a `conflict` fault for a key with another prompt, a `limit` fault (`QUEUE_LIMIT`) over the queue's
    bound, and `refused` (`RESULT_NOT_STORABLE`) where nothing may be kept.
    """
    specs = [(key, replace(spec, incognito=spec.incognito or session.incognito)) for key, spec in specs]
    if len({key for key, _ in specs}) < len(specs):
        raise Fault("invalid", "Two jobs of one list have the same key.", field="key")
    found = [_existing(tx, session, key, spec) for key, spec in specs]
    fresh = [pair for pair, job in zip(specs, found, strict=True) if job is None]
    if fresh:
        least = ceilings.strictest(level, *(spec.level for _, spec in fresh))
        if not ceilings.can_keep(least):
            raise Fault("refused", NOT_STORABLE, reason="RESULT_NOT_STORABLE", level=least)
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


def _existing(tx: Tx, session: Session, key: str, spec: Spec) -> Job | None:
    row = tx.one(
        "select id, fingerprint, session from jobs where owner = :owner and key = :key", owner=session.owner, key=key
    )
    if row is None:
        return None
    if (row["fingerprint"], row["session"]) != (spec.fingerprint, session.uid):
        raise Fault("conflict", "This key was used for another job.", key=key.removeprefix("api:"))
    return job_rows.by_id(tx, row["id"])


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
    job_id, level = f"bg-{secrets.token_hex(6)}", ceilings.strictest(level, spec.level)
    if spec.deterministic and ceilings.keep(level, spec.prompt, tx.redact) != spec.prompt:
        raise Fault("refused", MASKED, reason="RESULT_NOT_STORABLE", level=level)
    tx.x(
        "insert into jobs (id, plugin, owner, session, batch_id, key, fingerprint, subagent_type, description, prompt, tools, "
        "status, created_at, parent, depth, incognito, deterministic, made_of) values (:id, :plugin, :owner, :session, :batch, :key, "
        ":fingerprint, :type, :description, :prompt, :tools, 'queued', :now, :parent, :depth, :incognito, :deterministic, :made_of)",
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
        incognito=spec.incognito,
        deterministic=spec.deterministic,
        made_of=spec.made_of,
    )
    return _sent_out(tx, job_id, batch_id, attempt=1)


def _sent_out(tx: Tx, job_id: str, batch_id: str, attempt: int, *, asked: bool = False) -> Job:
    batches.add(tx, batch_id, job_id, attempt)
    queue.enqueue(
        tx,
        "dispatch",
        f"dispatch:{job_id}:{attempt}",
        lane=f"dispatch:{batch_id}",
        params={"job": job_id, "attempt": attempt, **({"follow_up": True} if asked else {})},
    )
    return tell(tx, job_id, "background.queued")


def tell(tx: Tx, job_id: str, name: str) -> Job:
    """Publish the job as it is now."""
    job = job_rows.by_id(tx, job_id)
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
        "excerpt = iif(incognito, null, :excerpt), report_chars = :chars, completed_at = :now where id = :id and task_id is :task "
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


def retry(tx: Tx, owner: str, job_id: str) -> Job:
    """A new attempt of an ended job, with the stored prompt, in a batch of its own. Raises `not_found`, `conflict`, `limit`."""
    job = job_rows.get(tx, owner, job_id)
    if not job.ended:
        raise Fault("conflict", f"The job is {job.status}; only an ended job can be retried.", status=job.status)
    if job.delivery == "attached":
        raise Fault(
            "conflict", "A turn is telling of this job just now; retry it when that has ended.", status=job.status
        )
    if not (job.follow_up or job.prompt):
        raise Fault("conflict", "What it was to do is not kept any more; send it out anew.", status=job.status)
    return again(tx, job, own_batch(job), "Retried before it was told.", closed=True)


def own_batch(job: Job) -> str:
    """The batch of one in which a further attempt comes back that nothing else was sent out with."""
    return f"{job.id}:{job.attempts + 1}"


def again(tx: Tx, job: Job, batch_id: str, told: str, *, closed: bool, asked: bool = False) -> Job:
    """A further attempt of an ended job, as a member of this batch; `asked`: it goes on from what was done.

    `told` says why its last end is not told any more. Raises a `limit` fault. What becomes of an end that a turn is telling just now is the caller's to know.
    """
    _check_room(tx, job.owner, 1)
    delivery.drop(tx, job.id, job.attempts, told)
    batches.withdraw(tx, job.id, job.attempts)
    batches.open_batch(tx, batch_id, job.owner, job.session, closed=closed)
    tx.x(
        "update jobs set status = 'queued', attempts = attempts + 1, batch_id = :batch, task_id = null, reason = null, "
        "detail = null, canceled_by = null, partial = 0, excerpt = null, report_chars = 0, indexed = 0, dismissed = 0, erased = 0, "
        f"started_at = null, completed_at = null where id = :id and status in {guard(JOB, 'retry')}",
        id=job.id,
        batch=batch_id,
    )
    return _sent_out(tx, job.id, batch_id, job.attempts + 1, asked=asked)


@dataclass(frozen=True)
class Further:
    """A further question: the level at which it is kept, the step that asks it, if one does, and the lowest tier of trust of
    what that has read by then.
    """

    question: str
    level: str
    step: str | None = None
    made_of: int | None = None


def asked_further(tx: Tx, job: Job, asked: Further, knows: Sequence[str]) -> None:
    """What its next attempt is asked; that goes on from the turns that it `knows`, and is made of what those have read."""
    tx.x(
        "update jobs set follow_up = :question, knows = :knows, asked_by = :step, made_of = :made_of where id = :id",
        question=tx.seal("jobs.follow_up", job.id, ceilings.keep(asked.level, asked.question, tx.redact)),
        knows=json.dumps(list(knows)),
        step=asked.step,
        made_of=min(filter(None, (job.made_of, asked.made_of)), default=None),
        id=job.id,
    )


def dismiss(tx: Tx, owner: str, job_id: str) -> Job:
    """Hide an ended job from the panel. Raises `not_found` and `conflict` faults."""
    job = job_rows.get(tx, owner, job_id)
    if not job.ended:
        raise Fault("conflict", f"The job is {job.status}; only an ended job can be dismissed.", status=job.status)
    tx.x("update jobs set dismissed = 1 where id = :id", id=job_id)
    return job_rows.by_id(tx, job_id)


def erase(tx: Tx, job_ids: str) -> None:
    """Take these jobs away (a JSON list of ids). For `retention.py`, which takes what hangs on them first."""
    tx.x("delete from jobs where id in (select value from json_each(:ids))", ids=job_ids)


def scrub(tx: Tx, job_id: str) -> None:
    """The report is erased: what of it stood here is gone, and the job says so."""
    tx.x(
        "update jobs set excerpt = null, report_chars = 0, indexed = 0, partial = 0, erased = 1 where id = :id",
        id=job_id,
    )
