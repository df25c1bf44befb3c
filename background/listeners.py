"""Listeners: who in a process hears of events, how far it has heard, and which process tells it. Owns `listeners`.

One process at a time tells a listener, under a lease like a run's. What is heard is told in the order of the rows.
"""

from dataclasses import dataclass

from background import events
from background.database import Tx


@dataclass(frozen=True)
class Held:
    """A listener that this process tells, and the number of the last event that it has heard."""

    name: str
    holder: str
    heard: int


def is_due(tx: Tx, name: str, holder: str) -> bool:
    """Whether `hold` would give the listener, and there is something to hear, or it is new."""
    row = tx.one("select * from listeners where name = :name", name=name)
    if row is None:
        return True
    return row["heard"] < events.newest(tx) and (row["holder"] in (None, holder) or row["held_until"] < tx.now)


def hold(tx: Tx, name: str, holder: str) -> Held | None:
    """Take the listener for another lease; None while somebody else tells it. One that is new hears what happens from now on."""
    tx.x(
        "insert into listeners (name, heard) values (:name, :newest) on conflict (name) do nothing",
        name=name,
        newest=events.newest(tx),
    )
    row = tx.one(
        "update listeners set holder = :holder, held_until = :now + :lease "
        "where name = :name and (holder is null or holder = :holder or held_until < :now) returning heard",
        name=name,
        holder=holder,
        now=tx.now,
        lease=tx.limits.lease,
    )
    return None if row is None else Held(name, holder, row["heard"])


def has_heard(tx: Tx, held: Held, number: int) -> Held | None:
    """It has heard all up to this event; None where another process tells it by now."""
    moved = tx.x(
        "update listeners set heard = :number, held_until = :now + :lease where name = :name and holder = :holder",
        name=held.name,
        holder=held.holder,
        number=number,
        now=tx.now,
        lease=tx.limits.lease,
    )
    return Held(held.name, held.holder, number) if moved else None


def let_go(tx: Tx, name: str, holder: str) -> None:
    """Another process may tell it at once."""
    tx.x(
        "update listeners set holder = null, held_until = null where name = :name and holder = :holder",
        name=name,
        holder=holder,
    )
