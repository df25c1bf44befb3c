"""What the console hears: rows in the commit of what they tell, numbered alike for every process.

An event's id is its row's number. Text deltas are no events of this kind: they have no row and no number.
"""

import json
import secrets
from dataclasses import dataclass
from typing import Any

from background.database import Tx

PAGE = 200


def emit(tx: Tx, owner: str, session: str, name: str, data: dict[str, Any]) -> None:
    """Tell of something, in the commit that makes it true. `session` is a session's uid."""
    uid = secrets.token_hex(8)
    tx.x(
        "insert into events (uid, owner, session, name, data, created_at) "
        "values (:uid, :owner, :session, :name, :data, :now)",
        uid=uid,
        owner=owner,
        session=session,
        name=name,
        data=tx.seal("events.data", f"{session}/{uid}", json.dumps(data, ensure_ascii=False)),
        now=tx.now,
    )
    tx.ring("events")


@dataclass(frozen=True)
class Event:
    """What was told: `data` is JSON."""

    id: int
    name: str
    data: str


def after(tx: Tx, owner: str, last: int, session: str | None = None) -> list[Event]:
    """The owner's events behind number `last`, in order, `PAGE` at most; `session` (a uid) narrows."""
    narrow = "and session = :session" if session else ""
    rows = tx.q(
        f"select * from events where owner = :owner and id > :last {narrow} order by id limit {PAGE}",
        owner=owner,
        last=last,
        session=session,
    )
    return [
        Event(row["id"], row["name"], tx.unseal("events.data", f"{row['session']}/{row['uid']}", row["data"]))
        for row in rows
    ]


@dataclass(frozen=True)
class Told(Event):
    """The same, and of whom and when."""

    owner: str
    created_at: int


def of_all(tx: Tx, last: int) -> list[Told]:
    """Everybody's events behind number `last`, in order, `PAGE` at most."""
    return [
        Told(
            row["id"],
            row["name"],
            tx.unseal("events.data", f"{row['session']}/{row['uid']}", row["data"]),
            row["owner"],
            row["created_at"],
        )
        for row in tx.q(f"select * from events where id > :last order by id limit {PAGE}", last=last)
    ]


def newest(tx: Tx) -> int:
    """The number of the newest event of all."""
    return tx.value("select coalesce(max(id), 0) from events")


def oldest(tx: Tx) -> int:
    """The number of the oldest event that is still there; 0 when there is none."""
    return tx.value("select coalesce(min(id), 0) from events")


def erase(tx: Tx, sessions: str) -> None:
    """Take away what was told of these sessions (a JSON list of uids)."""
    tx.x("delete from events where session in (select value from json_each(:sessions))", sessions=sessions)


def erase_job(tx: Tx, session: str, job_id: str) -> None:
    """Take away what was told of a job; its session's other events stay."""
    rows = tx.q("select * from events where session = :session and name like 'background.%'", session=session)
    for row in rows:
        data = json.loads(tx.unseal("events.data", f"{row['session']}/{row['uid']}", row["data"]))
        if data.get("id") == job_id:
            tx.x("delete from events where id = :id", id=row["id"])


def erase_turn(tx: Tx, task_id: str) -> None:
    """Take away what was told of a turn, while it is still there: an event may say what it asked its user."""
    rows = tx.q(
        "select e.* from events e join tasks t on t.id = :task where e.session = t.session and e.name like 'turn.%' "
        "and e.created_at between t.created_at and coalesce(t.ended_at, :now)",
        task=task_id,
        now=tx.now,
    )
    for row in rows:
        data = json.loads(tx.unseal("events.data", f"{row['session']}/{row['uid']}", row["data"]))
        if data.get("task_id") == task_id:
            tx.x("delete from events where id = :id", id=row["id"])


def purge(tx: Tx, before: int, limit: int) -> int:
    """Take away what was told before a time. Returns how many."""
    return tx.x(
        "delete from events where id in (select id from events where created_at < :before order by created_at limit :limit)",
        before=before,
        limit=limit,
    )
