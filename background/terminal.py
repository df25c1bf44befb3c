"""How tasks and jobs end: settle, cancel, fold. The only roads to an end, and they are one road.

Each is a guarded statement followed, in the same commit, by all that must come of it: result, log, job, delivery,
batch, event. False means that another was first; then nothing is written or told.
"""

from dataclasses import dataclass, field
from typing import Any

from background import batches, delivery, jobs, queue, results, sessions, tasks
from background.database import Tx
from background.errors import Fault
from background.jobs import Job, JobEnd
from background.queue import Run
from background.states import MOVE_TO, TASK_ENDS
from background.tasks import Task, Usage

CANCELED_BY_USER = "Canceled by its user."


@dataclass(frozen=True)
class Outcome:
    """How a turn ended. `artifacts` are protocol artifacts; `partial` is what text a failed one left."""

    state: str
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    partial: str | None = None
    reason: str | None = None
    detail: str | None = None
    excerpt: str = ""
    transcript: str | None = None
    usage: Usage | None = None
    canceled_by: str | None = None


def settle(tx: Tx, run: Run, outcome: Outcome) -> bool:
    """End the task of a run that this attempt holds. False if the attempt is over."""
    if not queue.finish(tx, run, TASK_ENDS[outcome.state]):
        return False
    return _end_task(tx, run.task_id or "", outcome)


def settle_expired(tx: Tx, run_id: int, task_id: str, outcome: Outcome) -> bool:
    """End the task of a run that nobody holds any more: the sweep's way."""
    return queue.withdraw(tx, run_id, TASK_ENDS[outcome.state]) and _end_task(tx, task_id, outcome)


def cancel_task(tx: Tx, task: Task, by: str) -> bool:
    """Cancel a task; its running work is told by the lease that it has lost. False if it has ended."""
    run = queue.open_run_of(tx, task.id)
    if run is None or not queue.withdraw(tx, run["id"], "canceled"):
        return False
    return _end_task(tx, task.id, Outcome("canceled", detail=f"Canceled by its {by}.", canceled_by=by))


def cancel_job(tx: Tx, job: Job, by: str) -> Job:
    """Cancel a job, wherever it is. Raises a `conflict` fault naming the status of one that has ended."""
    if job.ended:
        raise Fault("conflict", f"The job is {job.status} already.", status=job.status)
    if job.task_id is not None:
        cancel_task(tx, tasks.by_id(tx, job.task_id), by)
    else:
        queue.cancel_key(tx, f"dispatch:{job.id}:{job.attempts}")
        jobs.end(tx, job.id, None, JobEnd("canceled", canceled_by=by))
    return jobs.by_id(tx, job.id)


def fail_undispatched(tx: Tx, job_id: str, reason: str, detail: str) -> bool:
    """End a job whose post will never be taken. False if it has ended or was dispatched."""
    return jobs.end(tx, job_id, None, JobEnd("failed", reason=reason, detail=detail))


def fold(tx: Tx, nudge: Task, into: Task) -> bool:
    """End a waiting nudge whose jobs a running turn has taken up. False if it has begun or ended."""
    run = queue.open_run_of(tx, nudge.id)
    row = tasks.end(tx, nudge.id, "fold", reason=None, detail=None, folded_into=into.id)
    if row is None or run is None:
        return False
    queue.withdraw(tx, run["id"], "done")
    results.record(tx, nudge.id, [])
    return True


def _end_task(tx: Tx, task_id: str, outcome: Outcome) -> bool:
    row = tasks.end(tx, task_id, MOVE_TO[outcome.state], reason=outcome.reason, detail=outcome.detail)
    if row is None:
        return False
    task = Task.of(row)
    results.record(tx, task_id, outcome.artifacts, outcome.partial)
    tasks.keep_last_checkpoint(tx, task_id, outcome.transcript)
    if outcome.usage:
        tasks.spent(tx, task_id, outcome.usage)
    if task.origin == "background":
        _end_job(tx, task, outcome)
    else:
        _end_turn(tx, task, outcome)
    return True


def _end_job(tx: Tx, task: Task, outcome: Outcome) -> None:
    text = results.Result(outcome.artifacts, outcome.partial).text
    how = JobEnd(
        status=outcome.state,
        reason=outcome.reason,
        detail=outcome.detail if outcome.reason else None,
        canceled_by=outcome.canceled_by,
        partial=outcome.state == "failed" and bool(outcome.partial),
        excerpt=outcome.excerpt,
        report_chars=len(text),
    )
    jobs.end(tx, task.cause or "", task.id, how)


def _end_turn(tx: Tx, task: Task, outcome: Outcome) -> None:
    if outcome.artifacts or outcome.state != "completed":
        sessions.log(tx, task.session, "agent", task_id=task.id)
    if outcome.state == "completed":
        delivery.deliver(tx, task.id)
    else:
        delivery.release(tx, task.id, outcome.detail or outcome.state, nudge=outcome.state == "failed")
    batches.close(tx, task.id)
    tasks.emit_turn(tx, task, "turn.finished", state=outcome.state, reason=outcome.reason)
