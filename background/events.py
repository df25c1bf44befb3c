"""What the console hears: rows in the commit of what they tell, numbered alike for every process.

An event's id is its row's number. Text deltas are no events of this kind: they have no row and no number.
"""

import json
from typing import Any

from background.database import Row, Tx

PAGE = 200


def emit(tx: Tx, owner: str, session: str, name: str, data: dict[str, Any]) -> None:
    """Tell of something, in the commit that makes it true. `session` is a session's uid."""
    tx.x(
        "insert into events (owner, session, name, data, created_at) values (:owner, :session, :name, :data, :now)",
        owner=owner,
        session=session,
        name=name,
        data=json.dumps(data, ensure_ascii=False),
        now=tx.now,
    )
    tx.ring("events")


def after(tx: Tx, owner: str, last: int, session: str | None = None) -> list[Row]:
    """The owner's events behind number `last`, in order, `PAGE` at most; `session` (a uid) narrows."""
    narrow = "and session = :session" if session else ""
    return tx.q(
        f"select id, name, data from events where owner = :owner and id > :last {narrow} order by id limit {PAGE}",
        owner=owner,
        last=last,
        session=session,
    )


def newest(tx: Tx) -> int:
    """The number of the newest event of all."""
    return tx.value("select coalesce(max(id), 0) from events")


def oldest(tx: Tx) -> int:
    """The number of the oldest event that is still there; 0 when there is none."""
    return tx.value("select coalesce(min(id), 0) from events")
