"""Uses: which items of memory entered which turn's model calls. Owns `memory_uses`; rows are added and never changed.

It names items and holds no word of them. A use goes with its turn.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from background.database import Row, Tx

BEGIN = "begin"  # the step at which a turn is given what it did not ask for
CHARS_PER_TOKEN = 4


@dataclass(frozen=True)
class Use:
    """An item that was put before a model: `kind` digest, fact, passage, session or report; `item` a session's uid, or the
    id of a memory, a document, a job; `place` where in it, in characters; `tier` its trust; `chars` how long it was.
    """

    kind: str
    item: str
    tier: int
    chars: int
    place: int = 0


@dataclass(frozen=True)
class Noted:
    """A use as it was noted, with its turn, and the step that brought it."""

    id: int
    task_id: str
    step: str
    kind: str
    item: str
    place: int
    tier: int
    tokens: int
    at: int


def note(tx: Tx, task_id: str, session: str, uses: Iterable[tuple[str, Use]]) -> None:
    """Note these (step, use) pairs of a turn, in the commit that keeps its step; the same again, after a crash, is once."""
    noted = [[step, use.kind, use.item, use.place, use.tier, -(-use.chars // CHARS_PER_TOKEN)] for step, use in uses]
    if noted:
        columns = ", ".join(f"json_extract(value, '$[{place}]')" for place in range(len(noted[0])))
        tx.x(
            "insert into memory_uses (step, kind, item, place, tier, tokens, session, task_id, at) "
            f"select {columns}, :session, :task, :now from json_each(:uses) where true order by key on conflict do nothing",
            session=session,
            task=task_id,
            now=tx.now,
            uses=json.dumps(noted),
        )


def page(tx: Tx, session: str, limit: int, before: int | None) -> list[Noted]:
    """What a session's turns were given, the latest first, before the number `before`."""
    rows = tx.q(
        "select * from memory_uses where session = :session and id < :before order by id desc limit :limit",
        session=session,
        before=before or 1 << 62,
        limit=limit,
    )
    return [_noted(row) for row in rows]


def find(tx: Tx, session: str, use_id: int) -> Noted | None:
    """One of a session's uses, or None."""
    row = tx.one("select * from memory_uses where session = :session and id = :id", session=session, id=use_id)
    return _noted(row) if row else None


def recalled_by(tx: Tx, session: str) -> list[str]:
    """The turns that have opened a session by its id."""
    rows = tx.q("select distinct task_id from memory_uses where kind = 'session' and item = :session", session=session)
    return [row["task_id"] for row in rows]


def _noted(row: Row) -> Noted:
    return Noted(**{name: row[name] for name in Noted.__dataclass_fields__})


def erase(tx: Tx, task_ids: str) -> None:
    """Take away what these turns (a JSON list of ids) were given."""
    tx.x("delete from memory_uses where task_id in (select value from json_each(:ids))", ids=task_ids)
