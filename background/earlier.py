"""Earlier turns of a session, as a later one is given them, and which messages were folded into which. Writes nothing."""

import json
from collections.abc import Collection
from dataclasses import dataclass

from background import checkpoints, messages
from background.database import Row, Tx


@dataclass(frozen=True)
class Past:
    """An earlier turn of a session: what its user said, and the whole turn as the model saw it, if it is kept.

    `text` is of a turn that did not complete: what it was asked, and what was folded into it.
    """

    id: str
    ended_at: int
    state: str
    detail: str | None
    transcript: str | None
    text: str | None


def folded_into(tx: Tx, task_id: str) -> str | None:
    """The turn that this task was folded into, if it was and that turn is still there."""
    return tx.value(
        "select turn.id from tasks t join tasks turn on turn.id = t.folded_into where t.id = :task", task=task_id
    )


def turns_of_folded(tx: Tx, session: str) -> dict[str, str]:
    """Of a session's messages that were folded into a turn: that turn, by the task of the message."""
    rows = tx.q(
        "select id, folded_into from tasks where session = :session and folded_into is not null and origin = 'user'",
        session=session,
    )
    return {row["id"]: row["folded_into"] for row in rows}


_PAST = (
    "select t.id, t.ended_at, t.state, t.detail, t.origin, c.content as transcript from tasks t "
    "left join checkpoints c on c.task_id = t.id and c.name = 'transcript'"
)


def turns(tx: Tx, session: str, before: str, limit: int, after: tuple[int, str] = (0, "")) -> list[Past]:
    """The session's ended turns before task `before`, the latest `limit`, oldest first; nothing that was withdrawn unread.

    `after` is when the last one ended that is not wanted any more, and its id.
    """
    rows = tx.q(
        f"{_PAST} where t.session = :session and t.ended_at is not null and t.folded_into is null and t.id <> :before "
        "and (t.state <> 'canceled' or t.started_at is not null) and (t.ended_at, t.id) > (:after, :last) "
        "order by t.ended_at desc, t.id desc limit :limit",
        session=session,
        before=before,
        after=after[0],
        last=after[1],
        limit=limit,
    )
    return [_past(tx, row) for row in reversed(rows)]


def of_tasks(tx: Tx, task_ids: Collection[str]) -> list[Past]:
    """These turns, in the order in which they ended, as far as the whole of them is kept."""
    rows = tx.q(
        f"{_PAST} where t.id in (select value from json_each(:ids)) and c.content is not null order by t.ended_at, t.id",
        ids=json.dumps(list(task_ids)),
    )
    return [_past(tx, row) for row in rows]


def _past(tx: Tx, row: Row) -> Past:
    task_id, transcript, detail = row["id"], row["transcript"], row["detail"]
    return Past(
        task_id,
        row["ended_at"],
        row["state"],
        None if detail is None else tx.unseal("tasks.detail", task_id, detail),
        None if transcript is None else checkpoints.opened(tx, task_id, "transcript", transcript),
        None if row["state"] == "completed" else _asked_of(tx, row),
    )


def _asked_of(tx: Tx, row: Row) -> str | None:
    texts = [messages.opening(tx, row["id"])[0]] if row["origin"] == "user" else []
    texts += [said.text for folded in steered_into(tx, row["id"]) for said in messages.said_by_user(tx, folded)]
    return "\n\n".join(filter(None, texts)) or None


def steered_into(tx: Tx, task_id: str) -> list[str]:
    """The tasks of the messages that were folded into this turn, in order of arrival."""
    rows = tx.q(
        "select id from tasks where folded_into = :task and origin = 'user' order by created_at, id", task=task_id
    )
    return [row["id"] for row in rows]
