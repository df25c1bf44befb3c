"""Sessions and their log. A session is (owner, id); inside it is known by its `uid`, which is never used again.

Owns `sessions` and `messages`. What stands in the log is what was said, by whom; the text of an agent's answer is
not here but in the task's result.
"""

import json
import secrets
from dataclasses import dataclass
from typing import Any

from background.database import Row, Tx
from background.errors import Fault, not_found
from background.text import clip

TITLE_CHARS = 80
BACKGROUND = "background:"


@dataclass(frozen=True)
class Session:
    """A session's row."""

    uid: str
    owner: str
    id: str
    kind: str
    title: str
    unattended: int
    created_at: int
    updated_at: int

    @classmethod
    def of(cls, row: Row) -> "Session":
        return cls(**{name: row[name] for name in cls.__dataclass_fields__})


def find(tx: Tx, owner: str, session_id: str) -> Session | None:
    """The owner's session of this id, or None."""
    row = tx.one("select * from sessions where owner = :owner and id = :id", owner=owner, id=session_id)
    return Session.of(row) if row else None


def get(tx: Tx, owner: str, session_id: str) -> Session:
    """The owner's session of this id. Raises a `not_found` fault."""
    session = find(tx, owner, session_id)
    if session is None:
        raise not_found("session")
    return session


def by_uid(tx: Tx, uid: str) -> Session:
    row = tx.one("select * from sessions where uid = :uid", uid=uid)
    assert row is not None, uid
    return Session.of(row)


def open_session(tx: Tx, owner: str, session_id: str, kind: str = "chat") -> Session:
    """The owner's session of this id, made if there is none."""
    found = find(tx, owner, session_id)
    if found:
        if found.kind != kind:
            raise Fault("invalid", f"A {found.kind} session takes no message of this kind.")
        return found
    row = tx.one(
        "insert into sessions (uid, owner, id, kind, created_at, updated_at) "
        "values (:uid, :owner, :id, :kind, :now, :now) returning *",
        uid=secrets.token_hex(8),
        owner=owner,
        id=session_id,
        kind=kind,
        now=tx.now,
    )
    assert row is not None
    return Session.of(row)


def page(tx: Tx, owner: str, limit: int, before: tuple[int, str] | None) -> list[Row]:
    """The owner's chats, the latest first, with `running`: how many turns are at work or wait."""
    at, uid = before or (1 << 62, "")
    return tx.q(
        "select s.*, (select count(*) from tasks t where t.session = s.uid and t.ended_at is null) as running "
        "from sessions s where owner = :owner and kind = 'chat' "
        "and (updated_at < :at or (updated_at = :at and uid > :uid)) order by updated_at desc, uid limit :limit",
        owner=owner,
        at=at,
        uid=uid,
        limit=limit,
    )


def with_running(tx: Tx, session: Session) -> Row:
    """One session as `page` lists them."""
    row = tx.one(
        "select s.*, (select count(*) from tasks t where t.session = s.uid and t.ended_at is null) as running "
        "from sessions s where uid = :uid",
        uid=session.uid,
    )
    assert row is not None
    return row


def heard_from_user(tx: Tx, session: Session, text: str) -> None:
    """The user has spoken: the count of unattended turns begins anew, and the first words make the title."""
    tx.x(
        "update sessions set unattended = 0, updated_at = :now, title = case when title = '' then :title else title end "
        "where uid = :uid",
        uid=session.uid,
        now=tx.now,
        title=clip(text, TITLE_CHARS),
    )


def began_unattended(tx: Tx, uid: str) -> None:
    """Outrider has begun a turn here by itself."""
    tx.x("update sessions set unattended = unattended + 1, updated_at = :now where uid = :uid", uid=uid, now=tx.now)


def log(
    tx: Tx,
    session: str,
    kind: str,
    text: str = "",
    *,
    task_id: str | None = None,
    content: dict[str, Any] | None = None,
    job_ids: tuple[str, ...] = (),
) -> int:
    """Add to a session's log. `kind`: user, agent, notification, nudge, notice. Returns the entry's number."""
    return tx.value(
        "insert into messages (session, task_id, role, kind, text, content, job_ids, created_at) "
        "values (:session, :task_id, :role, :kind, :text, :content, :job_ids, :now) returning id",
        session=session,
        task_id=task_id,
        role="agent" if kind in ("agent", "notice") else "user",
        kind=kind,
        text=text,
        content=None if content is None else json.dumps(content, ensure_ascii=False),
        job_ids=json.dumps(job_ids),
        now=tx.now,
    )


def messages(tx: Tx, session: str, limit: int, before: int | None) -> list[Row]:
    """The newest `limit` entries of a log before number `before`, in order, each with its task's end."""
    rows = tx.q(
        "select m.*, t.state, t.reason, t.detail, r.artifacts, r.partial from messages m "
        "left join tasks t on t.id = m.task_id left join results r on r.task_id = m.task_id and m.kind = 'agent' "
        "where m.session = :session and m.id < :before order by m.id desc limit :limit",
        session=session,
        before=before or 1 << 62,
        limit=limit,
    )
    return rows[::-1]


def history(tx: Tx, task_id: str, limit: int | None) -> list[dict[str, Any]]:
    """The protocol messages that a client sent to a task, in order; the last `limit` of them."""
    rows = tx.q(
        "select content from messages where task_id = :task_id and content is not null order by id desc limit :limit",
        task_id=task_id,
        limit=-1 if limit is None else limit,
    )
    return [json.loads(row["content"]) for row in reversed(rows)]


def text_of(tx: Tx, task_id: str) -> str:
    """The text of the message that made a task."""
    return (
        tx.value(
            "select text from messages where task_id = :task and content is not null order by id limit 1", task=task_id
        )
        or ""
    )


def noted_since_user(tx: Tx, session: str, text: str) -> bool:
    """Whether this very notice stands in the log since the user's last word."""
    return bool(
        tx.one(
            "select 1 from messages where session = :session and kind = 'notice' and text = :text and id > "
            "(select coalesce(max(id), 0) from messages where session = :session and kind = 'user')",
            session=session,
            text=text,
        )
    )


def notified_chars(tx: Tx, task_id: str) -> int:
    """How many characters of notifications a turn has been given so far."""
    return tx.value(
        "select coalesce(sum(length(text)), 0) from messages where task_id = :task and kind = 'notification'",
        task=task_id,
    )
