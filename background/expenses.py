"""Expenses: what model calls have cost, put to the turn and its part, the job, and the chat that it was for. Owns `expenses`.

It is added as it is spent and never counted again from what was kept: what a crash made a turn ask twice was paid
twice. An entry has no word of what was said, and stays with its session when retention takes the turn. It stops nobody.
"""

from dataclasses import dataclass

from background import job_rows, jobs, questions, sessions, tasks
from background.database import Row, Tx
from background.tasks import Task
from background.usage import SUMS, Usage

CAUSES = ("turn", "briefing", "job", "retry", "follow_up", "compaction", "memory")  # what it was spent for


@dataclass(frozen=True)
class Entry:
    """What one part of a turn has cost; a new part begins with each answer that it waited for, and `part` counts from 1."""

    task_id: str | None
    part: int
    cause: str
    at: int
    usage: Usage


def charge(tx: Tx, task: Task, usage: Usage, cause: str | None = None) -> None:
    """Put this to a turn's account, whatever has become of the turn. Nothing where its session, or its job, is gone.

    `cause` is told by the turn itself, unless it was spent for something else.
    """
    job = job_rows.known(tx, task.cause or "") if task.origin == "background" else None
    chat = task.session if task.origin != "background" else job and job.session
    if chat is None or not sessions.stands(tx, chat):
        return
    there = tasks.exists(tx, task.id)
    if there:
        tasks.spend(tx, task.id, usage)
    if job:
        jobs.spend(tx, job.id, usage)
        sessions.spent_by_jobs(tx, chat, usage.tokens)
    sums = ", ".join(f"{name} = expenses.{name} + excluded.{name}" for name in SUMS)
    tx.x(
        f"insert into expenses (session, task_id, part, job_id, cause, at, {', '.join(SUMS)}) values "
        f"(:session, :task, :part, :job, :cause, :now, {', '.join(f':{name}' for name in SUMS)}) "
        f"on conflict (task_id, part, cause) do update set at = excluded.at, {sums}",
        session=chat,
        task=task.id if there else None,
        part=1 + questions.answers_to(tx, task.id),
        job=job and job.id,
        cause=cause or _cause(task, job),
        now=tx.now,
        **vars(usage),
    )


def charge_memory(tx: Tx, session: str, usage: Usage) -> None:
    """Put to a chat's account what it has cost to remember it; nothing where it is gone."""
    if usage != Usage() and sessions.stands(tx, session):
        tx.x(
            f"insert into expenses (session, part, cause, at, {', '.join(SUMS)}) values "
            f"(:session, 1, 'memory', :now, {', '.join(f':{name}' for name in SUMS)})",
            session=session,
            now=tx.now,
            **vars(usage),
        )


def _cause(task: Task, job: job_rows.Job | None) -> str:
    if job:
        return "follow_up" if job.follow_up else "job" if job.attempts == 1 else "retry"
    return "briefing" if task.origin == "background-resume" else "turn"


_SUMS = ", ".join(f"coalesce(sum({name}), 0) as {name}" for name in SUMS)


def of_session(tx: Tx, session: str) -> dict[str, Usage]:
    """What a chat and its jobs have cost since it was made, by cause; only causes that there are."""
    rows = tx.q(f"select cause, {_SUMS} from expenses where session = :session group by cause", session=session)
    found = {row["cause"]: _usage(row) for row in rows}
    return {cause: found[cause] for cause in CAUSES if cause in found}


def of_job(tx: Tx, job_id: str) -> list[Entry]:
    """The parts of a job's turns, over all its attempts, in order."""
    rows = tx.q("select * from expenses where job_id = :job order by id", job=job_id)
    return [Entry(row["task_id"], row["part"], row["cause"], row["at"], _usage(row)) for row in rows]


def since(tx: Tx, at: int) -> Usage:
    """What was spent by turns that have asked a model since a time, whoever's they are."""
    (row,) = tx.q(f"select {_SUMS} from expenses where at >= :at", at=at)
    return _usage(row)


def _usage(row: Row) -> Usage:
    return Usage(*(row[name] for name in SUMS))


def forget(tx: Tx, task_ids: str, job_ids: str) -> None:
    """These tasks and jobs (JSON lists of ids) are gone: what they cost stays their session's."""
    tx.x("update expenses set task_id = null where task_id in (select value from json_each(:ids))", ids=task_ids)
    tx.x("update expenses set job_id = null where job_id in (select value from json_each(:ids))", ids=job_ids)


def erase(tx: Tx, sessions_: str) -> None:
    """Take away what was put to these sessions (a JSON list of uids)."""
    tx.x("delete from expenses where session in (select value from json_each(:uids))", uids=sessions_)
