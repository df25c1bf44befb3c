"""Follow-ups: a further question to the worker of a job that has ended, as a new attempt that goes on from what it knows.

An attempt that is asked so is an attempt like any other: dispatched, ended, told and fenced by the same roads. It owns no table.
"""

from background import ceilings, earlier, job_rows, jobs, queue, tasks
from background.database import Tx
from background.errors import Fault
from background.job_rows import Job
from background.queue import Run

REASON = "CONTEXT_GONE"
GONE = "What its worker knew is not kept any more, so it cannot be asked further; send the question out as a job of its own."


def ask(tx: Tx, owner: str, job_id: str, question: str, level: str) -> Job:
    """Ask the worker of an ended job; what it answers comes back in a batch of its own, and `level` is the most that is kept.

    Raises `not_found`, `conflict`, `limit` and `refused` faults: `CONTEXT_GONE` where nothing is kept of what it did,
    `QUEUE_LIMIT`, `RESULT_NOT_STORABLE`.
    """
    job = job_rows.get(tx, owner, job_id)
    if job.delivery == "attached":
        raise Fault("conflict", "A turn is telling of this job just now; ask when that has ended.", status=job.status)
    return _ask(tx, job, jobs.Further(question, level), jobs.own_batch(job))


def ask_in_turn(tx: Tx, run: Run, job: Job, question: str, step: str) -> Job:
    """The same by a step of a turn, which asks once however often it is run: what comes back is part of the turn's batch.

    An end that this turn itself has taken up is told by it. Raises `LeaseLost` too.
    """
    queue.fence(tx, run)
    if job.asked_by == step:
        return job
    task_id = run.task_id or ""
    if job.delivery == "attached" and job.delivery_task != task_id:
        raise Fault("conflict", "Another turn is telling of this job just now.", status=job.status)
    asked = jobs.Further(question, tasks.ceiling_of(tx, task_id), step, tasks.made_of(tx, task_id))
    return _ask(tx, job, asked, task_id)


def _ask(tx: Tx, job: Job, asked: jobs.Further, batch_id: str) -> Job:
    if not job.ended:
        raise Fault(
            "conflict", f"The job is {job.status}; only the worker of an ended job is asked.", status=job.status
        )
    if not ceilings.can_keep(asked.level):
        raise Fault("refused", jobs.NOT_STORABLE, reason="RESULT_NOT_STORABLE", level=asked.level)
    before = job.knows if job.follow_up else ()
    knows = [past.id for past in earlier.of_tasks(tx, [*before, job.task_id or ""])]
    if not knows:
        raise Fault("conflict", GONE, reason=REASON, status=job.status)
    jobs.asked_further(tx, job, asked, knows)
    return jobs.again(tx, job, batch_id, "Asked further before it was told.", closed=asked.step is None, asked=True)
