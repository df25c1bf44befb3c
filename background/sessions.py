"""Sessions and their log. A session is (owner, id); inside it is known by its `uid`, which is never used again.

Owns `sessions` and `messages`. What stands in the log is what was said, by whom; the text of an agent's answer is
not here but in the task's result.
"""

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from background import ids
from background.database import Row, Tx
from background.errors import Fault, not_found
from background.states import INTERRUPTED
from background.text import clip
from background.values import text_of, value_of

TITLE_CHARS = 80
BACKGROUND = "background:"


@dataclass(frozen=True)
class Session:
    """A session's row."""

    uid: str
    owner: str
    id: str
    kind: str
    unattended: int
    created_at: int
    updated_at: int

    @classmethod
    def of(cls, row: Row) -> "Session":
        return cls(**{name: row[name] for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Listed:
    """A session as it stands in a list; `running`: how many of its turns are at work, wait, or are parked; `parked`: of those
    the ones that wait for an answer.
    """

    session: Session
    title: str
    running: int
    parked: int


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
            raise another_kind(found)
        return found
    return make(tx, owner, session_id, kind)


def another_kind(found: Session) -> Fault:
    return Fault("invalid", f"A {found.kind} session takes no message of this kind.")


def make(tx: Tx, owner: str, session_id: str, kind: str, said: str = "") -> Session:
    """A new session; the first words that its user `said` make its title."""
    uid = ids.uid()
    tx.x(
        "insert into sessions (uid, owner, id, kind, title, created_at, updated_at) "
        "values (:uid, :owner, :id, :kind, :title, :now, :now)",
        uid=uid,
        owner=owner,
        id=session_id,
        kind=kind,
        title=_title(tx, uid, said),
        now=tx.now,
    )
    return Session(uid, owner, session_id, kind, 0, tx.now, tx.now)


def _title(tx: Tx, uid: str, said: str) -> bytes | None:
    return tx.seal("sessions.title", uid, clip(said, TITLE_CHARS)) if said.strip() else None


_OPEN = "(select count(*) from tasks t where t.session = s.uid and t.ended_at is null{})"
_PARKED = f" and t.state in {INTERRUPTED}"
_LISTED = f"select s.*, {_OPEN.format('')} as running, {_OPEN.format(_PARKED)} as parked from sessions s"


def page(tx: Tx, owner: str, limit: int, before: tuple[int, str] | None) -> list[Listed]:
    """The owner's chats, the latest first."""
    at, uid = before or (1 << 62, "")
    rows = tx.q(
        f"{_LISTED} where owner = :owner and kind = 'chat' "
        "and (updated_at < :at or (updated_at = :at and uid > :uid)) order by updated_at desc, uid limit :limit",
        owner=owner,
        at=at,
        uid=uid,
        limit=limit,
    )
    return [_listed(tx, row) for row in rows]


def with_running(tx: Tx, session: Session) -> Listed:
    """One session as `page` lists them."""
    (row,) = tx.q(f"{_LISTED} where uid = :uid", uid=session.uid)
    return _listed(tx, row)


def _listed(tx: Tx, row: Row) -> Listed:
    cell = row["title"]
    title = "" if cell is None else tx.unseal("sessions.title", row["uid"], cell)
    return Listed(Session.of(row), title, row["running"], row["parked"])


def heard_from_user(tx: Tx, session: Session, text: str) -> None:
    """The user has spoken: unattended turns and its jobs' tokens are counted anew, and the first words make the title."""
    tx.x(
        "update sessions set unattended = 0, tree_tokens = 0, updated_at = :now, title = coalesce(title, :title) where uid = :uid",
        uid=session.uid,
        now=tx.now,
        title=_title(tx, session.uid, text),
    )


def seen_at(tx: Tx, uid: str, at: int) -> None:
    """Something was last said here at this time, if that is later than what is known; for what comes from elsewhere."""
    tx.x("update sessions set updated_at = max(updated_at, :at) where uid = :uid", uid=uid, at=min(at, tx.now))


def retitle(tx: Tx, uid: str, said: str, kept: str) -> None:
    """Where the title was made of what is said to be kept otherwise now, it is made of what is kept."""
    cell = tx.value("select title from sessions where uid = :uid", uid=uid)
    if cell is not None and tx.unseal("sessions.title", uid, cell) == clip(said, TITLE_CHARS):
        title = tx.seal("sessions.title", uid, clip(kept, TITLE_CHARS)) if kept.strip() else None
        tx.x("update sessions set title = :title where uid = :uid", uid=uid, title=title)


def forget_title(tx: Tx, uid: str, said: str) -> None:
    """What was said is gone: where the title was made of it, it is made of what its user said first of what is left."""
    row = tx.one(
        "select * from messages where session = :uid and kind = 'user' and text is not null order by id limit 1",
        uid=uid,
    )
    retitle(tx, uid, said, "" if row is None else _text(tx, row))


def began_unattended(tx: Tx, uid: str) -> None:
    """Outrider has begun a turn here by itself."""
    tx.x("update sessions set unattended = unattended + 1, updated_at = :now where uid = :uid", uid=uid, now=tx.now)


def stands(tx: Tx, uid: str) -> bool:
    """Whether there is still this session."""
    return tx.one("select 1 from sessions where uid = :uid", uid=uid) is not None


def spent_by_jobs(tx: Tx, uid: str, tokens: int) -> None:
    """Jobs of this chat have used so many model tokens more."""
    tx.x("update sessions set tree_tokens = tree_tokens + :tokens where uid = :uid", uid=uid, tokens=tokens)


def tree_tokens(tx: Tx, uid: str) -> int:
    """The model tokens that the jobs of this chat have used since its user last spoke."""
    return tx.value("select tree_tokens from sessions where uid = :uid", uid=uid) or 0


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


def messages(tx: Tx, session: str, limit: int, before: int | None, most: int) -> tuple[list[Message], bool]:
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


def scrub(tx: Tx, task_id: str) -> None:
    """Nothing of what was said in a task is kept; that something was said, and when, stays."""
    tx.x("update messages set text = null, content = null, chars = 0 where task_id = :task", task=task_id)


def erase_messages(tx: Tx, task_ids: str) -> None:
    """Take away what was said in these tasks (a JSON list of ids)."""
    tx.x("delete from messages where task_id in (select value from json_each(:ids))", ids=task_ids)


def erase(tx: Tx, uids: str) -> None:
    """Take away these sessions (a JSON list of uids) and what is left of their logs."""
    tx.x("delete from messages where session in (select value from json_each(:uids))", uids=uids)
    tx.x("delete from sessions where uid in (select value from json_each(:uids))", uids=uids)


def with_nothing_left(tx: Tx, before: int, limit: int) -> list[str]:
    """Sessions in which nothing has happened since a time, and nothing is left but notices; the oldest first."""
    rows = tx.q(
        "select uid from sessions s where updated_at < :before and not exists (select 1 from tasks where session = s.uid) "
        "and not exists (select 1 from jobs where session = s.uid) order by updated_at limit :limit",
        before=before,
        limit=limit,
    )
    return [row["uid"] for row in rows]


def of_job(tx: Tx, owner: str, job_ids: list[str]) -> list[str]:
    """The sessions in which these jobs themselves worked, as uids."""
    rows = tx.q(
        "select uid from sessions where owner = :owner and id in (select :prefix || value from json_each(:ids))",
        owner=owner,
        prefix=BACKGROUND,
        ids=json.dumps(job_ids),
    )
    return [row["uid"] for row in rows]


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
    if kind == "user" and text:
        tx.x(
            "update sessions set title = coalesce(title, :title) where uid = :uid",
            title=tx.seal("sessions.title", session, clip(text, TITLE_CHARS)),
            uid=session,
        )
