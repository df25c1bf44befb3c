"""Steering: messages that a turn at work is to take up between two of its steps; which wait for it, and how they are folded in.

Such a message is a task of its own in its session's lane, until the turn that it was sent to takes it up. What comes
too late stays in the lane and is a turn like any other. It owns no table, and never reopens a turn after its last answer.
"""

import json
from dataclasses import dataclass

from background import messages, queue, tasks, terminal
from background.database import Tx
from background.messages import Unread
from background.tasks import Task


def at_work(tx: Tx, session: str) -> Task | None:
    """The turn at the head of a session's lane: at work, about to be, or parked."""
    head = queue.head(tx, f"session:{session}")
    return None if head is None else tasks.by_id(tx, head)


def target(tx: Tx, session: str, profile: str) -> str | None:
    """The turn that a message for this profile may be folded into: no turn does the work of another profile."""
    turn = at_work(tx, session)
    return turn.id if turn and turn.profile == profile else None


@dataclass(frozen=True)
class Course:
    """What became of a message with a task of its own: `steers` the turn that is to take it up, while it waits for that;
    `folded_into` the one that did; `withdrawn`: it was canceled before anybody had read it.
    """

    steers: str | None = None
    folded_into: str | None = None
    withdrawn: bool = False


def courses(tx: Tx, task_ids: list[str]) -> dict[str, Course]:
    """What became of the messages of these tasks, by task; of one that began, or is to begin, a turn of its own, nothing."""
    rows = tx.q(
        "select t.id, t.folded_into, t.state, t.started_at, turn.id as turn from tasks t "
        "left join tasks turn on turn.id = t.steers and turn.ended_at is null "
        "where t.id in (select value from json_each(:ids))",
        ids=json.dumps(task_ids),
    )
    return {
        row["id"]: Course(
            steers=row["turn"] if row["state"] == "submitted" else None,
            folded_into=row["folded_into"],
            withdrawn=row["state"] == "canceled" and row["started_at"] is None,
        )
        for row in rows
    }


def waits(tx: Tx, task_id: str) -> bool:
    """Whether a message waits to be folded into this turn."""
    return tx.one(f"{_WAITING} limit 1", task=task_id) is not None


def fold(tx: Tx, into: Task) -> list[Unread]:
    """Fold in all that waits for this turn, in order of arrival: each task ends, and what was said in it is returned."""
    return [
        said
        for row in tx.q(f"{_WAITING} order by created_at, id", task=into.id)
        for said in _folded(tx, row["id"], into)
    ]


def _folded(tx: Tx, task_id: str, into: Task) -> list[Unread]:
    """Of both, no more is kept than the stricter of their levels allows: from now on they are one turn."""
    task = tasks.by_id(tx, task_id)
    terminal.tighten(tx, task.id, tasks.ceiling_of(tx, into.id))
    terminal.tighten(tx, into.id, task.ceiling)
    if not terminal.fold(tx, task, into):
        return []
    messages.taken_up(tx, task.id)
    tasks.emit_turn(tx, task, "turn.finished", state="completed", reason=None, folded_into=into.id)
    return messages.said_by_user(tx, task.id)


_WAITING = "select id from tasks where steers = :task and state = 'submitted'"
