"""The ledger: what has become of each end that a session was to be told of, and what can be done about it by hand.

It reads; what is changed is changed by `delivery.py`, by the rules of every delivery.
"""

from dataclasses import dataclass

from background import delivery, job_rows
from background.database import Row, Tx
from background.errors import Fault
from background.job_rows import Job

STATES = ("pending", "attached", "delivered", "undeliverable", "discarded")


@dataclass(frozen=True)
class Entry:
    """The newest end of a job: its delivery's `state` is one of `STATES`; times are microseconds. Of an incognito one without
    words: `description` is empty, and `last_error` None.
    """

    job_id: str
    job_created_at: int
    session_id: str
    description: str
    status: str
    state: str
    attempt: int
    tries: int
    failed_turns: int
    last_error: str | None
    task_id: str | None
    ended_at: int
    notified_at: int | None
    discarded_at: int | None
    discarded_by: str | None


_SELECT = (
    "select j.id as job_id, j.created_at as job_created_at, j.description as sealed, j.incognito, j.status, s.id as session_id, "
    "case when d.discarded_at is null then d.state else 'discarded' end as state, d.attempt, d.tries, d.failed_turns, "
    "d.last_error, d.task_id, d.ended_at, d.notified_at, d.discarded_at, d.discarded_by from jobs j "
    "join deliveries d on d.job_id = j.id and d.attempt = j.attempts join sessions s on s.uid = j.session "
    "where j.owner = :owner"
)


def page(
    tx: Tx, owner: str, limit: int, *, state: str | None = None, before: tuple[int, str] | None = None
) -> list[Entry]:
    """The owner's entries by the age of their jobs, newest first; `before` is the last (created_at, id) seen."""
    narrow = " and case when d.discarded_at is null then d.state else 'discarded' end = :state" if state else ""
    narrow += " and (j.created_at, j.id) < (:at, :id)" if before else ""
    at, last = before or (0, "")
    rows = tx.q(
        f"{_SELECT}{narrow} order by j.created_at desc, j.id desc limit :limit",
        owner=owner,
        state=state,
        at=at,
        id=last,
        limit=limit,
    )
    return [_entry(tx, row) for row in rows]


def get(tx: Tx, owner: str, job_id: str) -> Entry:
    """The entry of the owner's job. Raises `not_found` for no such job, and `conflict` for one that has not ended."""
    job = job_rows.get(tx, owner, job_id)
    row = tx.one(f"{_SELECT} and j.id = :id", owner=owner, id=job_id)
    if row is None:
        raise Fault("conflict", f"The job is {job.status}; there is nothing to tell yet.", status=job.status)
    return _entry(tx, row)


def _entry(tx: Tx, row: Row) -> Entry:
    made = {name: row[name] for name in Entry.__dataclass_fields__ if name != "description"}
    if row["incognito"]:
        return Entry(description="", **{**made, "last_error": None})
    if row["last_error"] is not None:
        place = f"{row['job_id']}/{row['attempt']}"
        made["last_error"] = tx.unseal("deliveries.last_error", place, row["last_error"])
    return Entry(description=tx.unseal("jobs.description", row["job_id"], row["sealed"]), **made)


def replay(tx: Tx, owner: str, job_id: str) -> Entry:
    """Tell once more what no turn could. Raises like `get`, and `conflict` for what was told or waits to be."""
    job, entry = job_rows.get(tx, owner, job_id), get(tx, owner, job_id)
    if not delivery.replay(tx, job_id, entry.attempt, job.batch_id):
        raise _conflict(job, entry)
    return get(tx, owner, job_id)


def discard(tx: Tx, owner: str, job_id: str, by: str) -> Entry:
    """Give up telling of a job's end. Raises like `replay`."""
    job, entry = job_rows.get(tx, owner, job_id), get(tx, owner, job_id)
    if not delivery.discard(tx, job_id, entry.attempt, by):
        raise _conflict(job, entry)
    return get(tx, owner, job_id)


def _conflict(job: Job, entry: Entry) -> Fault:
    told = {
        "pending": f"It waits to be told already ({entry.last_error or 'its session will be woken'})",
        "attached": "A turn is telling of it just now",
        "delivered": "It was told",
        "discarded": f"It was discarded by {entry.discarded_by}",
    }
    return Fault("conflict", f"{told.get(entry.state, 'It was given up')}; nothing was changed.", state=entry.state)
