"""How tasks and jobs end: settle, cancel, fold; and how they are parked. The only roads to an end, and they are one road.

Each is a guarded statement followed, in the same commit, by all that must come of it: result, log, job, delivery,
batch, event. False means that another was first; then nothing is written or told.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from background import (
    batches,
    ceilings,
    checkpoints,
    delivery,
    earlier,
    job_rows,
    jobs,
    journal,
    messages,
    questions,
    queue,
    results,
    scrubbing,
    tasks,
)
from background.database import Tx
from background.errors import Fault, Unread
from background.job_rows import Job
from background.jobs import JobEnd
from background.questions import Question
from background.queue import Run
from background.states import MOVE_TO, TASK_ENDS
from background.tasks import Hangs, Task

NOT_KEPT_REASON = "RESULT_NOT_KEPT"
NOT_KEPT = "The privacy settings keep no result of this: the answer level sank while it ran."
GOES_ON = "What it has called cannot be stopped and goes on to its end: {}. What comes of that is not kept."
NO_ANSWER = "Nobody answered its question in time."
LEAST_REVISIONS = 3  # submitted, working, ended: a task that has no more was never parked and told no pieces


@dataclass(frozen=True)
class Outcome:
    """How a turn ended. `artifacts` are protocol artifacts; `partial` is what text a failed one left. Not `written`: it has no
    result, not even an empty one, since none could be stored or nothing came of it.

    `shorten` makes the excerpt out of the text once that has been masked: a mask knows no secret that was cut in two.
    """

    state: str
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    partial: str | None = None
    reason: str | None = None
    detail: str | None = None
    excerpt: str = ""
    shorten: Callable[[str], str] | None = None
    transcript: str | None = None
    canceled_by: str | None = None
    written: bool = True
    going_on: str = ""  # what the cancel does not reach, in words


def settle(tx: Tx, run: Run, outcome: Outcome) -> bool:
    """End the task of a run that this attempt holds. False if the attempt is over.

    Raises `Unread`, and nothing is written, where it would complete and has not taken up all that was sent to it.
    """
    if not queue.finish(tx, run, TASK_ENDS[outcome.state]):
        return False
    hangs = tasks.hangs_on(tx, run.task_id or "")
    if outcome.state == "completed" and hangs.unread:
        raise Unread
    return _end_task(tx, run.task_id or "", outcome, hangs)


def settle_expired(tx: Tx, run_id: int, task_id: str, outcome: Outcome) -> bool:
    """End the task of a run that nobody holds any more: the sweep's way."""
    withdrawn = queue.withdraw(tx, run_id, TASK_ENDS[outcome.state])
    return withdrawn and _end_task(tx, task_id, outcome, tasks.hangs_on(tx, task_id))


def lasting(tx: Tx, task: Task) -> str:
    """What of a task at work a cancel will not reach, in words; empty where it reaches all."""
    names = checkpoints.going_on(tx, task.id)
    return GOES_ON.format(", ".join(names)) if names else ""


def cancel_task(tx: Tx, task: Task, by: str) -> bool:
    """Cancel a task; its running work is told by the lease that it has lost. False if it has ended.

    What it does not reach is named: a plugin's call that cannot be stopped.
    """
    going_on = lasting(tx, task)
    run = queue.open_run_of(tx, task.id)
    if run is None or not queue.withdraw(tx, run["id"], "canceled"):
        return False
    detail = " ".join(filter(None, [f"Canceled by its {by}.", going_on]))
    outcome = Outcome("canceled", detail=detail, canceled_by=by, going_on=going_on)
    return _end_task(tx, task.id, outcome, tasks.hangs_on(tx, task.id))


def cancel_job(tx: Tx, job: Job, by: str) -> Job:
    """Cancel a job, wherever it is. Raises a `conflict` fault naming the status of one that has ended."""
    if job.ended:
        raise Fault("conflict", f"The job is {job.status} already.", status=job.status)
    if job.task_id is not None:
        cancel_task(tx, tasks.by_id(tx, job.task_id), by)
    else:
        queue.cancel_key(tx, f"dispatch:{job.id}:{job.attempts}")
        jobs.end(tx, job.id, None, JobEnd("canceled", canceled_by=by))
    return job_rows.by_id(tx, job.id)


def fail_undispatched(tx: Tx, job_id: str, reason: str, detail: str) -> bool:
    """End a job whose post will never be taken. False if it has ended or was dispatched."""
    return jobs.end(tx, job_id, None, JobEnd("failed", reason=reason, detail=detail))


def fold(tx: Tx, waiting: Task, into: Task) -> bool:
    """End a task that waits, and whose nudge or message a running turn has taken up. False if it has begun or ended."""
    run = queue.open_run_of(tx, waiting.id)
    if run is None or tasks.end(tx, waiting.id, "fold", reason=None, detail=None, folded_into=into.id) is None:
        return False
    queue.withdraw(tx, run["id"], "done")
    results.record(tx, waiting.id, [])
    return True


def park(tx: Tx, run: Run, question: Question, *, deadline: int | None = None) -> bool:
    """Set a run's task aside until its question is answered. False if the attempt is over.

    The run keeps its place in its session's lane, so whatever else comes for the session waits behind it.
    """
    if not queue.park(tx, run):
        return False
    parked = tasks.park(tx, run, question, deadline)
    assert parked is not None, run.task_id  # a task ends by its run alone, and that was still this attempt's
    task, asked = parked
    told = questions.message(task.id, asked)
    said = "\n\n".join(filter(None, (asked.text, asked.detail)))  # also when it is over, the log says what was asked
    messages.log(tx, task.session, "agent", said, task_id=task.id, content=told)
    if deadline is not None:
        expiry = {"task": task.id, "revision": asked.revision}
        queue.enqueue(tx, "expire", f"expire:{task.id}:{asked.revision}", params=expiry, due_at=deadline)
    if task.origin == "background":
        jobs.parked(tx, task.id)
    else:
        shown = questions.shown(asked, job_rows.QUESTION_CHARS)
        tasks.emit_turn(tx, task, "turn.finished", state=task.state, reason=None, question=shown)
    return True


def expire(tx: Tx, task_id: str, revision: int) -> bool:
    """Nobody has answered this question in time: its task fails. False if it was answered, or the task has ended."""
    asked = questions.current(tx, task_id)
    if asked is None or asked.revision != revision:
        return False
    return settle_expired(tx, asked.run_id, task_id, Outcome("failed", reason="TIMED_OUT", detail=NO_ANSWER))


def lower(tx: Tx, run: Run, level: str) -> str:
    """A provider's level has its say before it is asked. Returns the one that holds then, and raises `LeaseLost`.

    Below `redacted` nothing may be kept, so the task has failed by then, and is not to be worked on.
    """
    queue.fence(tx, run)
    tighten(tx, run.task_id or "", level)
    return tasks.ceiling_of(tx, run.task_id or "")


def tighten(tx: Tx, task_id: str, level: str) -> None:
    """Let a level have its say in what is kept of a task, of what was folded into it, and of those that it sent out,
    whatever state they are in.
    """
    task = tasks.by_id(tx, task_id)
    now = tasks.lower(tx, task_id, level)
    if now is None:
        return
    run = queue.open_run_of(tx, task_id)
    if run is not None and not ceilings.can_keep(now):
        settle_expired(tx, run["id"], task_id, Outcome("failed", reason=NOT_KEPT_REASON, detail=NOT_KEPT))
    else:
        scrubbing.lower(tx, task, now)
    for folded in earlier.steered_into(tx, task_id):
        tighten(tx, folded, now)
    for job in job_rows.sent_by(tx, task.owner, task_id):
        tighten_errand(tx, job, now)
        for attempt in tasks.attempts_at(tx, job.id):
            tighten(tx, attempt, now)


def tighten_errand(tx: Tx, job: Job, level: str) -> None:
    """Let a level have its say in what a job was asked; one that is not at work yet is not begun where nothing is kept."""
    scrubbing.lower_errand(tx, job, level)
    if job.task_id is None and not ceilings.can_keep(level):
        queue.cancel_key(tx, f"dispatch:{job.id}:{job.attempts}")
        fail_undispatched(tx, job.id, NOT_KEPT_REASON, NOT_KEPT)


def _end_task(tx: Tx, task_id: str, outcome: Outcome, hangs: Hangs) -> bool:
    outcome = kept(outcome, hangs.ceiling, tx.redact)
    if not ceilings.can_keep(hangs.ceiling):
        scrubbing.lower(tx, tasks.by_id(tx, task_id), hangs.ceiling)
    task = tasks.end(tx, task_id, MOVE_TO[outcome.state], reason=outcome.reason, detail=outcome.detail)
    if task is None:
        return False
    if outcome.written:
        results.record(tx, task_id, outcome.artifacts, outcome.partial)
    if hangs.steps or outcome.transcript is not None:
        checkpoints.keep_last(tx, task_id, outcome.transcript)
    if task.revision > LEAST_REVISIONS:
        asked = questions.close(tx, task_id)
        queue.cancel_key(tx, f"expire:{task_id}:{asked}")
        if outcome.artifacts:  # else the pieces stand for what there was: nothing takes back what was told
            journal.drop_fragments(tx, task_id)
    if task.origin == "background":
        _end_job(tx, task, outcome, hangs)
    else:
        _end_turn(tx, task, outcome, hangs)
    return True


def kept(outcome: Outcome, level: str, redact: ceilings.Redact) -> Outcome:
    """What may be kept of an end at this level: of a result that may not be kept, only that there was one."""
    if level == "full":
        return outcome
    if not ceilings.can_keep(level):
        bare = Outcome(outcome.state, canceled_by=outcome.canceled_by, detail=outcome.detail)
        if outcome.state == "canceled":
            return bare
        return replace(bare, state="failed", reason=NOT_KEPT_REASON, detail=NOT_KEPT)
    artifacts = ceilings.keep_json(level, outcome.artifacts, redact)
    partial = outcome.partial and ceilings.keep(level, outcome.partial, redact)
    shorten = outcome.shorten or (lambda _: ceilings.keep(level, outcome.excerpt, redact))
    return replace(
        outcome,
        artifacts=artifacts,
        partial=partial,
        detail=outcome.detail and ceilings.keep(level, outcome.detail, redact),
        excerpt=shorten(results.Result(artifacts, partial).text),
        transcript=None if outcome.transcript is None else ceilings.keep_json(level, outcome.transcript, redact),
    )


def scrub(tx: Tx, task_id: str) -> None:
    """Nothing of what was said or answered in this task is kept here. State, reason and times stay."""
    scrubbing.scrub(tx, task_id)


def _end_job(tx: Tx, task: Task, outcome: Outcome, hangs: Hangs) -> None:
    text = results.Result(outcome.artifacts, outcome.partial).text
    how = JobEnd(
        status=outcome.state,
        reason=outcome.reason,
        detail=outcome.detail if outcome.reason else outcome.going_on or None,
        canceled_by=outcome.canceled_by,
        partial=outcome.state == "failed" and bool(outcome.partial),
        excerpt=outcome.excerpt,
        report_chars=len(text),
    )
    jobs.end(tx, task.cause or "", task.id, how)
    if outcome.state == "canceled":
        for child in job_rows.children(tx, task.cause or ""):
            cancel_job(tx, child, outcome.canceled_by or "user")
    _end_telling(tx, task, outcome, hangs)
    if hangs.sent:  # what it has not taken up comes back to the chat
        batches.close(tx, task.id)


def _end_telling(tx: Tx, task: Task, outcome: Outcome, hangs: Hangs) -> None:
    """What it was told of is delivered by a turn that completed, and by no other."""
    if hangs.told and outcome.state == "completed":
        delivery.deliver(tx, task.id)
    elif hangs.told:
        delivery.release(tx, task.id, outcome.detail or outcome.state, nudge=outcome.state == "failed")


def _end_turn(tx: Tx, task: Task, outcome: Outcome, hangs: Hangs) -> None:
    if outcome.artifacts or outcome.state != "completed":
        messages.log(tx, task.session, "agent", task_id=task.id)
    _end_telling(tx, task, outcome, hangs)
    if not hangs.told and task.origin == "background-resume" and outcome.state == "failed":
        delivery.missed(tx, task.id, outcome.detail or outcome.state)
    if hangs.sent:
        batches.close(tx, task.id)
    tasks.emit_turn(tx, task, "turn.finished", state=outcome.state, reason=outcome.reason)
