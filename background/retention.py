"""What goes, goes everywhere: erasing sessions, tasks and reports, and what has outlived its time.

Each table's own module takes its rows; here stands what hangs on what. It is one transaction, so what is erased is
hidden at once; that its bytes leave the files as well is the `erase` run's, which the same commit enqueues. Whoever
still works on what is gone has lost its run, and what it writes late is nothing.
"""

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from background import (
    acceptance,
    batches,
    checkpoints,
    delivery,
    earlier,
    events,
    expenses,
    gists,
    job_rows,
    jobs,
    journal,
    masked,
    memories,
    memory_uses,
    messages,
    questions,
    queue,
    results,
    sessions,
    shares,
    tasks,
    terminal,
    webhooks,
)
from background.database import Tx
from background.errors import Fault
from background.limits import SECOND
from background.sessions import Session
from background.tasks import Task

AT_ONCE = 50  # jobs, tasks or sessions that a purge takes in one transaction
ROWS_AT_ONCE = 2000
FOLLOW_UPS = ("dispatch", "report", "index", "nudge", "join", "expire", "erase", "tighten", "summary", "harvest")
DAY = 24 * 3600 * SECOND
Forget = Callable[[str], str]


@dataclass(frozen=True)
class Ages:
    """How long what has ended is kept, in days: as a rule, and for the profiles that say otherwise. Of an incognito session
    all goes when nothing has happened in it for so many hours.
    """

    days: float = 30
    of_profile: Mapping[str, float] | None = None
    incognito_hours: float = 24


def erase_session(tx: Tx, session: Session, forget: Forget = str) -> None:
    """Erase a session with all that it owns: turns, jobs, what those worked in, logs, results.

    `forget` takes what was recalled of it out of a text that a turn of another session was given.
    """
    _forget_recalled(tx, session.uid, forget)
    uids, job_ids = [session.uid], list[str]()
    for uid in uids:  # grows by the sessions of the jobs, and of their jobs
        sent = job_rows.ids_of_sessions(tx, json.dumps([uid]))
        job_ids += sent
        uids += sessions.of_job(tx, session.owner, sent)
    memories.erase(tx, json.dumps(uids))
    _erase(tx, session.owner, tasks.ids_of_sessions(tx, json.dumps(uids)), job_ids, uids, indexed=False)
    _enqueue(tx, session.owner, job_ids, session.id)


def erase_task(tx: Tx, task: Task, forget: Forget = str) -> None:
    """Erase one turn, with the messages that were folded into it; `forget` as for a session. Raises `conflict` faults for what goes with another:
    a job's own task, and the task of a message that is part of another turn.
    """
    if task.origin == "background":
        raise Fault("conflict", "This is a job's own task; erase the job's report, or its session.")
    into = earlier.folded_into(tx, task.id)
    if task.origin == "user" and into is not None:
        raise Fault("conflict", "This message is part of another turn; erase that one.", folded_into=into)
    terminal.cancel_task(tx, task, "user")  # what it has taken up is told by another turn
    turn = [task.id, *earlier.steered_into(tx, task.id)]
    memories.forget(tx, turn)
    _forget_recalled(tx, task.session, forget)
    for task_id in turn:
        events.erase_turn(tx, task_id)
    _erase_turns(tx, task.owner, turn)


def erase_report(tx: Tx, owner: str, job_id: str, forget: Forget) -> None:
    """Erase one report: its text wherever it stands, and nothing else. Raises `not_found`, `conflict` faults.

    `forget` takes the report out of a text that a turn was given. A turn that is at work has it in its memory, and begins
    anew from what is stored.
    """
    job = job_rows.get(tx, owner, job_id)
    if not job.ended:
        raise Fault("conflict", f"The job is {job.status}; only an ended job has a report.", status=job.status)
    own = sessions.of_job(tx, owner, [job_id])
    for task_id in tasks.ids_of_sessions(tx, json.dumps(own)):
        terminal.scrub(tx, task_id)
    jobs.scrub(tx, job_id)
    events.erase_job(tx, job.session, job_id)
    for told in (job.session, *sessions.of_job(tx, owner, [job.parent] if job.parent else [])):
        _forget_report(tx, told, job_id, forget)
    _enqueue(tx, owner, [job_id])


def _forget_report(tx: Tx, session: str, job_id: str, forget: Forget) -> None:
    """Take a report out of what the turns of a session were given."""
    gists.drop(tx, session)
    memories.forget_summary(tx, session)
    messages.rewrite_notifications(tx, session, job_id, forget)
    for task_id in tasks.ids_of_sessions(tx, json.dumps([session])):
        _rewrite(tx, task_id, forget)
    running = tasks.running(tx, session)
    if running is not None:
        _start_over(tx, running.id)


def _forget_recalled(tx: Tx, session: str, forget: Forget) -> None:
    """Take what was recalled of a session out of what turns of others were given."""
    for task_id in memory_uses.recalled_by(tx, session):
        _rewrite(tx, task_id, forget)
        _start_over(tx, task_id)


def _rewrite(tx: Tx, task_id: str, forget: Forget) -> None:
    answers = masked.answers(tx, task_id)
    checkpoints.rewrite_all(tx, task_id, forget)
    masked.mark(tx, task_id, answers)


def _start_over(tx: Tx, task_id: str) -> None:
    """A turn that is at work has it in its memory: it goes on from what is stored."""
    run = queue.open_run_of(tx, task_id)
    if run is not None:
        queue.start_over(tx, run["id"])


def purge(tx: Tx, ages: Ages) -> int:
    """Take a batch of what has outlived its time: incognito sessions that were left, jobs, then turns, then what is left of
    sessions. Returns how many.

    An end that nobody was told of is kept twice as long; what runs or is parked has not ended.
    """
    left = sessions.incognito_and_left(tx, _cutoff(tx, ages.incognito_hours / 24), AT_ONCE)
    for session in left:
        erase_session(tx, session)
    cutoff = _cutoff(tx, ages.days)
    own = dict(ages.of_profile or {})
    job_ids = job_rows.ended_before(tx, cutoff, _cutoff(tx, 2 * ages.days), AT_ONCE)
    for owner, mine in job_rows.by_owner(tx, job_ids).items():
        uids = sessions.of_job(tx, owner, mine)
        _erase(tx, owner, tasks.ids_of_sessions(tx, json.dumps(uids)), mine, uids, indexed=False)
    turns = tasks.ended_before(tx, cutoff, AT_ONCE, profile=None, others=own)
    for profile, days in own.items():
        sooner = tasks.ended_before(tx, _cutoff(tx, days), AT_ONCE, profile=profile)
        for task_id in sooner if days < ages.days else ():  # those of others go by the same age as their turns
            events.erase_turn(tx, task_id)
        turns += sooner
    _erase_turns(tx, "", turns, indexed=False)
    empty = sessions.with_nothing_left(tx, cutoff, AT_ONCE)
    _erase(tx, "", [], [], empty, indexed=False)
    gone = memories.outlived(tx, json.dumps(empty), cutoff, ROWS_AT_ONCE)
    gone += events.purge(tx, cutoff, ROWS_AT_ONCE) + queue.purge(tx, "push", tx.now - DAY, ROWS_AT_ONCE)
    gone += sum(queue.purge(tx, kind, cutoff, ROWS_AT_ONCE) for kind in FOLLOW_UPS)
    return len(left) + len(job_ids) + len(turns) + len(empty) + gone


def _cutoff(tx: Tx, days: float) -> int:
    return tx.now - int(days * DAY)


def _erase_turns(tx: Tx, owner: str, task_ids: list[str], *, indexed: bool = True) -> None:
    """Turns whose sessions stay: none is called any more by what was said in one that is gone."""
    said = [(tasks.by_id(tx, task_id).session, messages.opening(tx, task_id)[0]) for task_id in task_ids]
    _erase(tx, owner, task_ids, [], [], indexed=indexed)
    for session, text in said:
        sessions.forget_title(tx, session, text)


def _erase(
    tx: Tx, owner: str, task_ids: list[str], job_ids: list[str], uids: list[str], *, indexed: bool = True
) -> None:
    """Children first. What a purge takes stays remembered in the index: a report outlives its job (`indexed` False)."""
    of_tasks, of_jobs, of_sessions = json.dumps(task_ids), json.dumps(job_ids), json.dumps(uids)
    keys = [f"{kind}:{job_id}" for job_id in job_ids for kind in ("dispatch", "report", "index", "tighten")]
    keys += [f"{kind}:{batch}" for batch in batches.of_jobs(tx, of_jobs) for kind in ("nudge", "join")]
    keys += [f"{kind}:{uid}" for uid in uids for kind in ("summary", "harvest")]
    keys += [f"expire:{task_id}" for task_id in task_ids]
    if uids:  # of a turn that goes alone: what it held is still to be told
        keys += [f"nudge:{kind}:{task_id}" for task_id in task_ids for kind in ("again", "rest")]
    queue.erase(tx, of_tasks, keys)
    for task_id in task_ids:  # who watches it, or waits for it, looks and finds it gone
        tx.ring(f"view:{task_id}")
        tx.ring(f"end:{task_id}")
    gists.forget(tx, task_ids)
    memory_uses.erase(tx, of_tasks)
    gists.erase(tx, of_sessions)
    expenses.forget(tx, of_tasks, of_jobs)
    expenses.erase(tx, of_sessions)
    delivery.erase(tx, of_jobs)
    delivery.forget_tasks(tx, of_tasks)
    batches.forget_tasks(tx, of_tasks)
    left = batches.erase_members(tx, of_jobs)
    jobs.erase(tx, of_jobs)
    batches.erase_empty(tx, left)
    for task_id in task_ids:
        webhooks.end_all(tx, task_id)
    questions.erase(tx, of_tasks)
    results.erase(tx, of_tasks)
    journal.erase(tx, of_tasks)
    messages.erase(tx, of_tasks)
    checkpoints.erase(tx, of_tasks)
    acceptance.forget(tx, of_tasks)
    tasks.erase(tx, of_tasks)
    events.erase(tx, of_sessions)
    shares.erase(tx, of_sessions)
    sessions.erase(tx, of_sessions)
    if indexed:
        _enqueue(tx, owner, job_ids)


def clean(tx: Tx) -> None:
    """What is gone leaves the files too, as soon as nobody reads there any more."""
    _enqueue(tx, "", [])


def _enqueue(tx: Tx, owner: str, job_ids: list[str], session_id: str | None = None) -> None:
    """The index rows, of a whole session or of some jobs, and the bytes in the files are the run's to take."""
    params = {"owner": owner, "jobs": job_ids, "session": session_id, "at": tx.now}
    queue.enqueue(tx, "erase", f"erase:{secrets.token_hex(8)}", params=params)
