"""Batches: what one turn sent out comes back as one briefing. Owns `batches`, `members`, `joins`.

A batch fires when it is closed and nobody is out, or at its deadline with what is there; the nudge's key is
(batch, generation), so whoever comes second finds it in the queue already.
"""

import json
from typing import Any

from background import delivery, queue
from background.database import Row, Tx
from background.errors import not_found


def open_batch(tx: Tx, batch_id: str, owner: str, session: str, *, closed: bool) -> None:
    """Make a batch unless it is there; a closed one takes no further members."""
    tx.x(
        "insert into batches (id, owner, session, closed_at, created_at) values (:id, :owner, :session, :closed, :now) "
        "on conflict (id) do nothing",
        id=batch_id,
        owner=owner,
        session=session,
        closed=tx.now if closed else None,
        now=tx.now,
    )


def add(tx: Tx, batch_id: str, job_id: str, attempt: int) -> None:
    tx.x(
        "insert into members (batch_id, job_id, attempt) values (:batch, :job, :attempt)",
        batch=batch_id,
        job=job_id,
        attempt=attempt,
    )


def member_ended(tx: Tx, batch_id: str, job_id: str, attempt: int, status: str) -> None:
    """A member's attempt is over; the first of a batch starts the clock of its deadline."""
    tx.x(
        "update members set status = :status where batch_id = :batch and job_id = :job and attempt = :attempt",
        status=status,
        batch=batch_id,
        job=job_id,
        attempt=attempt,
    )
    first = tx.x(
        "update batches set first_end_at = :now where id = :batch and first_end_at is null", batch=batch_id, now=tx.now
    )
    if first:
        queue.enqueue(
            tx,
            "join",
            f"join:{batch_id}",
            params={"batch": batch_id},
            due_at=tx.now + tx.limits.batch_join_timeout,
        )


def withdraw(tx: Tx, job_id: str, attempt: int) -> None:
    """A retry takes this attempt out of its batch's join; what the batch counted stays readable."""
    batch_id = tx.value(
        "update members set withdrawn = 1 where job_id = :job and attempt = :attempt returning batch_id",
        job=job_id,
        attempt=attempt,
    )
    check(tx, batch_id)


def close(tx: Tx, batch_id: str) -> None:
    """The turn that sent the jobs out has ended: no more will come. Nothing where there is no such batch."""
    if tx.x("update batches set closed_at = :now where id = :id and closed_at is null", id=batch_id, now=tx.now):
        check(tx, batch_id)


def check(tx: Tx, batch_id: str) -> bool:
    """Fire if the batch is closed and nobody is out, or if its deadline has passed and found nothing to tell."""
    complete = tx.one(
        "select 1 from batches where id = :batch and ((generation = 0 and first_end_at <= :overdue) or "
        "(closed_at is not null and not exists (select 1 from members m "
        "left join deliveries d on d.job_id = m.job_id and d.attempt = m.attempt "
        "where m.batch_id = :batch and m.withdrawn = 0 and d.ready_at is null)))",
        batch=batch_id,
        overdue=tx.now - tx.limits.batch_join_timeout,
    )
    if complete is None:
        return False
    queue.cancel_key(tx, f"join:{batch_id}")  # nobody is out any more, or its time has come and gone
    return fire(tx, batch_id)


def past_deadline(tx: Tx, batch_id: str) -> bool:
    """Tell what is there, if no join has happened yet."""
    untold = tx.one("select 1 from batches where id = :batch and generation = 0", batch=batch_id)
    return untold is not None and fire(tx, batch_id)


def fire(tx: Tx, batch_id: str) -> bool:
    """Join: those who have ended and were in no join before become the next generation.

    One nudge for them, unless a turn has them already or nothing that is left wakes anybody: the user canceled it, or it
    is incognito.
    """
    ready = tx.q(
        "select m.job_id, m.attempt, d.state, j.canceled_by is 'user' or j.incognito as quiet, j.incognito from members m join jobs j on j.id = m.job_id "
        "join deliveries d on d.job_id = m.job_id and d.attempt = m.attempt where m.batch_id = :batch "
        "and m.generation is null and m.withdrawn = 0 and d.ready_at is not null",
        batch=batch_id,
    )
    if not ready:
        return False
    generation = tx.value(
        "update batches set generation = generation + 1 where id = :batch returning generation", batch=batch_id
    )
    for row in ready:
        tx.x(
            "update members set generation = :generation where batch_id = :batch and job_id = :job and attempt = :attempt",
            generation=generation,
            batch=batch_id,
            job=row["job_id"],
            attempt=row["attempt"],
        )
    pending = [row for row in ready if row["state"] == "pending"]
    if all(row["quiet"] for row in pending):
        for row in pending:
            why = delivery.INCOGNITO if row["incognito"] else delivery.NO_NEWS
            delivery.held_up(tx, [row["job_id"]], why, tried=False)
        return False
    tx.x(
        "insert into joins (batch_id, generation, counts, at) values (:batch, :generation, :counts, :now)",
        batch=batch_id,
        generation=generation,
        counts=json.dumps(counts(tx, batch_id)),
        now=tx.now,
    )
    return queue.enqueue(
        tx, "nudge", f"nudge:{batch_id}:{generation}", params={"batch": batch_id, "generation": generation}
    )


def nudged(tx: Tx, batch_id: str, generation: int, task_id: str) -> None:
    """The join's nudge was accepted as this task."""
    tx.x(
        "update joins set task_id = :task where batch_id = :batch and generation = :generation and task_id is null",
        task=task_id,
        batch=batch_id,
        generation=generation,
    )


def generation_of(tx: Tx, batch_id: str, generation: int) -> list[str]:
    """The jobs that a join tells of."""
    rows = tx.q(
        "select job_id from members where batch_id = :batch and generation = :generation order by job_id",
        batch=batch_id,
        generation=generation,
    )
    return [row["job_id"] for row in rows]


def counts(tx: Tx, batch_id: str) -> dict[str, int]:
    """How many members there are by status; `out` are those without an end."""
    rows = tx.q(
        "select coalesce(status, 'out') as status, count(*) as n from members where batch_id = :batch group by 1 order by 1",
        batch=batch_id,
    )
    return {row["status"]: row["n"] for row in rows}


def get(tx: Tx, owner: str, batch_id: str) -> tuple[Row, list[Row], list[dict[str, Any]]]:
    """The owner's batch, its members, its joins. Raises a `not_found` fault."""
    batch = tx.one(
        "select b.*, s.id as session_id from batches b join sessions s on s.uid = b.session where b.id = :id and b.owner = :owner",
        id=batch_id,
        owner=owner,
    )
    if batch is None:
        raise not_found("batch")
    members = tx.q("select * from members where batch_id = :id order by job_id, attempt", id=batch_id)
    joins = tx.q(
        "select generation, task_id, at, counts from joins where batch_id = :id order by generation", id=batch_id
    )
    return batch, members, [{**dict(row), "counts": json.loads(row["counts"])} for row in joins]


def session_of(tx: Tx, owner: str, batch_id: str) -> str | None:
    """The uid of the session that the owner's batch was sent out from, or None where there is no such batch."""
    return tx.value("select session from batches where id = :id and owner = :owner", id=batch_id, owner=owner)


def erase_members(tx: Tx, job_ids: str) -> str:
    """Take these jobs (a JSON list of ids) out of their batches. Returns those batches, for `erase_empty`."""
    rows = tx.q(
        "delete from members where job_id in (select value from json_each(:ids)) returning batch_id", ids=job_ids
    )
    return json.dumps(sorted({row["batch_id"] for row in rows}))


def erase_empty(tx: Tx, batch_ids: str) -> None:
    """Take away those of these batches (a JSON list of ids) that are left without a member."""
    empty = (
        "(select b.value from json_each(:ids) b where not exists (select 1 from members where batch_id = b.value) "
        "and not exists (select 1 from jobs where batch_id = b.value))"
    )
    tx.x(f"delete from joins where batch_id in {empty}", ids=batch_ids)
    tx.x(f"delete from batches where id in {empty}", ids=batch_ids)


def of_jobs(tx: Tx, job_ids: str) -> list[str]:
    """The batches that these jobs (a JSON list of ids) are or were members of, and nobody else is."""
    rows = tx.q(
        "select distinct batch_id from members m where job_id in (select value from json_each(:ids)) and not exists "
        "(select 1 from members where batch_id = m.batch_id and job_id not in (select value from json_each(:ids)))",
        ids=job_ids,
    )
    return [row["batch_id"] for row in rows]


def forget_tasks(tx: Tx, task_ids: str) -> None:
    """Nudges' tasks are gone; that a join was told stays."""
    tx.x("update joins set task_id = null where task_id in (select value from json_each(:ids))", ids=task_ids)
