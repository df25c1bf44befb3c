"""The log of a session: what was said, by whom. Owns `messages`.

The text of an agent's answer is not here but in its task's result.
"""

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from background.database import Row, Tx
from background.values import text_of, value_of


@dataclass(frozen=True)
class Message:
    """An entry of a log, with its task's end. `text` of an agent's answer is empty: it is the task's result."""

    id: int
    session: str
    task_id: str | None
    role: str
    kind: str
    text: str
    job_ids: tuple[str, ...]
    created_at: int


def log(
    tx: Tx,
    session: str,
    kind: str,
    text: str = "",
    *,
    task_id: str | None = None,
    content: dict[str, Any] | None = None,
    job_ids: tuple[str, ...] = (),
    waits: bool = False,
) -> int:
    """Add to a session's log. `kind`: user, agent, notification, nudge, notice. Returns the entry's number.

    `waits` for a message to a task at work, until that has taken it up.
    """
    uid = secrets.token_hex(8)
    row = f"{session}/{uid}"
    said = None if content is None else text_of(content)
    return tx.value(
        "insert into messages (uid, session, task_id, role, kind, text, content, chars, waits, job_ids, created_at) values "
        "(:uid, :session, :task_id, :role, :kind, :text, :content, :chars, :waits, :job_ids, :now) returning id",
        uid=uid,
        session=session,
        task_id=task_id,
        role="agent" if kind in ("agent", "notice") else "user",
        kind=kind,
        text=tx.seal("messages.text", row, text) if text else None,
        content=None if said is None else tx.seal("messages.content", row, said),
        chars=len(text),
        waits=waits,
        job_ids=json.dumps(job_ids) if job_ids else "[]",
        now=tx.now,
    )


def _text(tx: Tx, row: Row) -> str:
    cell = row["text"]
    return "" if cell is None else tx.unseal("messages.text", f"{row['session']}/{row['uid']}", cell)


def _content(tx: Tx, row: Row) -> dict[str, Any]:
    return value_of(tx.unseal("messages.content", f"{row['session']}/{row['uid']}", row["content"]))


def _message(tx: Tx, row: Row) -> Message:
    plain = {name: row[name] for name in ("id", "session", "task_id", "role", "kind", "created_at")}
    return Message(**plain, text=_text(tx, row), job_ids=tuple(json.loads(row["job_ids"])))


def page(tx: Tx, session: str, limit: int, before: int | None, most: int) -> tuple[list[Message], bool]:
    """The newest entries of a log before number `before`, in order, and whether there are earlier ones.

    `limit` at most, and of `most` bytes in all with the answers that belong to them; one entry may be more.
    """
    sizes = tx.q(
        "select id, coalesce(length(text), 0) + iif(kind = 'agent', coalesce((select length(artifacts) + "
        "coalesce(length(partial), 0) from results r where r.task_id = m.task_id), 0), 0) as size "
        "from messages m where session = :session and id < :before order by id desc limit :limit + 1",
        session=session,
        before=before or 1 << 62,
        limit=limit,
    )
    totals = accumulate(row["size"] for row in sizes)
    fit = max(1, sum(total <= most for total in totals))
    shown = [row["id"] for row in sizes[: min(fit, limit)]]
    rows = tx.q(
        "select * from messages where id in (select value from json_each(:ids)) order by id", ids=json.dumps(shown)
    )
    return [_message(tx, row) for row in rows], len(sizes) > len(shown)


# What is said in a task, and in those that were folded into it.
_OF_TURN = "select :task_id union all select id from tasks where folded_into = :task_id and origin = 'user'"


def history(tx: Tx, task_id: str, limit: int | None) -> list[dict[str, Any]]:
    """The protocol messages of a task, with those that were folded into it, in order; the last `limit` of them."""
    rows = tx.q(
        f"select * from messages where task_id in ({_OF_TURN}) and content is not null order by id desc limit :limit",
        task_id=task_id,
        limit=-1 if limit is None else limit,
    )
    return [_content(tx, row) for row in reversed(rows)]


def histories(tx: Tx, task_ids: list[str], limit: int | None) -> dict[str, list[dict[str, Any]]]:
    """The protocol messages of each of these tasks, with those that were folded into it, in order; its last `limit`."""
    if limit is not None:
        return {task_id: history(tx, task_id, limit) for task_id in task_ids} if limit else {}
    found: dict[str, list[dict[str, Any]]] = {}
    rows = tx.q(
        "with asked (id) as (select value from json_each(:ids)), "
        "turns (turn, task) as (select id, id from asked union all select asked.id, t.id from asked "
        "join tasks t on t.folded_into = asked.id and t.origin = 'user') "
        "select turns.turn, m.* from turns cross join messages m on m.task_id = turns.task "  # in this order
        "where m.content is not null order by m.id",
        ids=json.dumps(task_ids),
    )
    for row in rows:
        found.setdefault(row["turn"], []).append(_content(tx, row))
    return found


def opening(tx: Tx, task_id: str) -> tuple[str, dict[str, Any]]:
    """The message that made a task: its text, and the protocol's message. Empty where it was scrubbed."""
    row = tx.one(
        "select * from messages where task_id = :task and content is not null order by id limit 1", task=task_id
    )
    return ("", {}) if row is None else (_text(tx, row), _content(tx, row))


@dataclass(frozen=True)
class Unread:
    """A message that is to be taken up: its number in the log, its text, the protocol's message."""

    id: int
    text: str
    content: dict[str, Any]


def waiting(tx: Tx, task_id: str) -> list[Unread]:
    """The messages that wait for a task to take them up, in order."""
    return [_unread(tx, row) for row in tx.q(f"{_SAID} and waits = 1 order by id", task=task_id)]


def said_by_user(tx: Tx, task_id: str) -> list[Unread]:
    """All that its user has said in a task, in order."""
    return [_unread(tx, row) for row in tx.q(f"{_SAID} and kind = 'user' order by id", task=task_id)]


_SAID = "select * from messages where task_id = :task and content is not null"


def _unread(tx: Tx, row: Row) -> Unread:
    return Unread(row["id"], _text(tx, row), _content(tx, row))


def unread(tx: Tx, task_id: str) -> bool:
    """Whether a message waits for a task to take it up."""
    return tx.one("select 1 from messages where task_id = :task and waits = 1 limit 1", task=task_id) is not None


def taken_up(tx: Tx, task_id: str) -> None:
    """What waited for this task is part of what it has been given."""
    tx.x("update messages set waits = 0 where task_id = :task and waits = 1", task=task_id)


def noted_since_user(tx: Tx, session: str, text: str) -> bool:
    """Whether this very notice stands in the log since the user's last word."""
    rows = tx.q(
        "select * from messages where session = :session and kind = 'notice' and id > "
        "(select coalesce(max(id), 0) from messages where session = :session and kind = 'user')",
        session=session,
    )
    return any(_text(tx, row) == text for row in rows)


def notified_chars(tx: Tx, task_id: str) -> int:
    """How many characters of notifications a turn has been given so far."""
    return tx.value(
        "select coalesce(sum(chars), 0) from messages where task_id = :task and kind = 'notification'",
        task=task_id,
    )


def first_of_user(tx: Tx, session: str) -> str:
    """What its user said first of what is kept; empty where nothing is."""
    row = tx.one(
        "select * from messages where session = :uid and kind = 'user' and text is not null order by id limit 1",
        uid=session,
    )
    return "" if row is None else _text(tx, row)


def scrub(tx: Tx, task_id: str) -> None:
    """Nothing of what was said in a task is kept; that something was said, and when, stays."""
    tx.x("update messages set text = null, content = null, chars = 0 where task_id = :task", task=task_id)


def erase(tx: Tx, task_ids: str) -> None:
    """Take away what was said in these tasks (a JSON list of ids)."""
    tx.x("delete from messages where task_id in (select value from json_each(:ids))", ids=task_ids)


def erase_of(tx: Tx, sessions: str) -> None:
    """Take away what is left of the logs of these sessions (a JSON list of uids)."""
    tx.x("delete from messages where session in (select value from json_each(:uids))", uids=sessions)


def rewrite_notifications(tx: Tx, session: str, job_id: str, rewrite: Callable[[str], str]) -> None:
    """Change what notifications of a job say in a session's log."""
    rows = tx.q("select * from messages where session = :session and kind = 'notification'", session=session)
    for row in rows:
        if job_id in json.loads(row["job_ids"]):
            text = rewrite(_text(tx, row))
            tx.x(
                "update messages set text = :text, chars = :chars where id = :id",
                text=tx.seal("messages.text", f"{row['session']}/{row['uid']}", text),
                chars=len(text),
                id=row["id"],
            )


KINDS = ("user", "agent", "notification", "nudge", "notice")


@dataclass(frozen=True)
class Whole:
    """An entry of a log with all that is kept of it: `content` is the protocol's message as JSON."""

    uid: str
    task_id: str | None
    kind: str
    text: str | None
    content: str | None
    job_ids: tuple[str, ...]
    created_at: int


def whole_log(tx: Tx, session: str) -> list[Whole]:
    """All of a session's log, in order."""
    return [
        Whole(
            row["uid"],
            row["task_id"],
            row["kind"],
            _text(tx, row) or None,
            None if row["content"] is None else json.dumps(_content(tx, row), ensure_ascii=False),
            tuple(json.loads(row["job_ids"])),
            row["created_at"],
        )
        for row in tx.q("select * from messages where session = :session order by id", session=session)
    ]


def logged(tx: Tx, session: str) -> set[str]:
    """The uids of all entries of a session's log."""
    return {row["uid"] for row in tx.q("select uid from messages where session = :session", session=session)}


def restore(
    tx: Tx,
    session: str,
    uid: str,
    task_id: str | None,
    carried: dict[str, Any],
    *,
    text: str | None,
    content: str | None,
) -> None:
    """An entry of a log from elsewhere, with its fields as a snapshot carries them; it is not there yet."""
    row, kind = f"{session}/{uid}", carried["kind"]
    tx.x(
        "insert into messages (uid, session, task_id, role, kind, text, content, chars, job_ids, created_at) values "
        "(:uid, :session, :task, :role, :kind, :text, :content, :chars, :job_ids, :at)",
        uid=uid,
        session=session,
        task=task_id,
        role="agent" if kind in ("agent", "notice") else "user",
        kind=kind,
        text=tx.seal("messages.text", row, text) if text else None,
        content=None if content is None else tx.seal("messages.content", row, content),
        chars=len(text or ""),
        job_ids=json.dumps(carried["job_ids"]),
        at=carried["created_at"],
    )
