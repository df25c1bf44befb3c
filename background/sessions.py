"""Sessions. A session is (owner, id); inside it is known by its `uid`, which is never used again.

Owns `sessions`; the log of one is `messages.py`.
"""

import json
from dataclasses import dataclass

from background import ids, messages
from background.database import Row, Tx
from background.errors import Fault, not_found
from background.states import INTERRUPTED
from background.text import clip

TITLE_CHARS = 80


BACKGROUND = "background:"


@dataclass(frozen=True)
class Session:
    """A session's row. Whether it is incognito is decided when it is made, and for good."""

    uid: str
    owner: str
    id: str
    kind: str
    unattended: int
    created_at: int
    updated_at: int
    incognito: bool = False

    @classmethod
    def of(cls, row: Row) -> "Session":
        made = {name: row[name] for name in cls.__dataclass_fields__}
        return cls(**{**made, "incognito": bool(row["incognito"])})


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


def open_session(tx: Tx, owner: str, session_id: str, kind: str = "chat", *, incognito: bool | None = None) -> Session:
    """The owner's session of this id, made if there is none; `incognito` None takes one that is there as it is.

    Raises a fault: `conflict` for one that is there and is not as it is asked for.
    """
    found = find(tx, owner, session_id)
    if found:
        if found.kind != kind:
            raise another_kind(found)
        if incognito not in (None, found.incognito):
            raise Fault("conflict", "There is a session of this id, and whether it is incognito is decided for good.")
        return found
    return make(tx, owner, session_id, kind, incognito=bool(incognito))


def another_kind(found: Session) -> Fault:
    return Fault("invalid", f"A {found.kind} session takes no message of this kind.")


def make(tx: Tx, owner: str, session_id: str, kind: str, said: str = "", *, incognito: bool = False) -> Session:
    """A new session; the first words that its user `said` make its title, unless it is incognito."""
    uid = ids.uid()
    tx.x(
        "insert into sessions (uid, owner, id, kind, title, created_at, updated_at, incognito) "
        "values (:uid, :owner, :id, :kind, :title, :now, :now, :incognito)",
        uid=uid,
        owner=owner,
        id=session_id,
        kind=kind,
        title=None if incognito else _title(tx, uid, said),
        now=tx.now,
        incognito=incognito,
    )
    return Session(uid, owner, session_id, kind, 0, tx.now, tx.now, incognito)


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
        title=None if session.incognito else _title(tx, session.uid, text),
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


def titled(tx: Tx, uid: str, said: str) -> None:
    """Its user's first words, where nothing else is its title yet; for what comes from elsewhere."""
    titled = "update sessions set title = coalesce(title, :title) where uid = :uid and incognito = 0"
    tx.x(titled, uid=uid, title=_title(tx, uid, said))


def forget_title(tx: Tx, uid: str, said: str) -> None:
    """What was said is gone: where the title was made of it, it is made of what its user said first of what is left."""
    retitle(tx, uid, said, messages.first_of_user(tx, uid))


def began_unattended(tx: Tx, uid: str) -> None:
    """Outrider has begun a turn here by itself."""
    tx.x("update sessions set unattended = unattended + 1, updated_at = :now where uid = :uid", uid=uid, now=tx.now)


def name_of(tx: Tx, uid: str) -> str | None:
    """What a session is called; None for one that is gone."""
    return tx.value("select id from sessions where uid = :uid", uid=uid)


def title_of(tx: Tx, uid: str) -> str | None:
    """A session's title; None where it has none, or is gone."""
    cell = tx.value("select title from sessions where uid = :uid", uid=uid)
    return None if cell is None else tx.unseal("sessions.title", uid, cell)


def harvested(tx: Tx, uid: str) -> int:
    """The last entry of a session's log that was searched for facts."""
    return tx.value("select harvested from sessions where uid = :uid", uid=uid) or 0


def harvest(tx: Tx, uid: str, upto: int) -> None:
    """A session's log was searched for facts up to this entry; or is to be searched behind it again."""
    tx.x("update sessions set harvested = :upto where uid = :uid", uid=uid, upto=upto)


def stands(tx: Tx, uid: str) -> bool:
    """Whether there is still this session."""
    return tx.one("select 1 from sessions where uid = :uid", uid=uid) is not None


def spent_by_jobs(tx: Tx, uid: str, tokens: int) -> None:
    """Jobs of this chat have used so many model tokens more."""
    tx.x("update sessions set tree_tokens = tree_tokens + :tokens where uid = :uid", uid=uid, tokens=tokens)


def tree_tokens(tx: Tx, uid: str) -> int:
    """The model tokens that the jobs of this chat have used since its user last spoke."""
    return tx.value("select tree_tokens from sessions where uid = :uid", uid=uid) or 0


def erase(tx: Tx, uids: str) -> None:
    """Take away these sessions (a JSON list of uids) and what is left of their logs."""
    messages.erase_of(tx, uids)
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


def incognito_and_left(tx: Tx, before: int, limit: int) -> list[Session]:
    """Incognito chats in which nothing has happened since a time, nothing runs or waits, and nothing is out."""
    since = "({0} is null or {0} >= :before)"
    rows = tx.q(
        "select * from sessions s where incognito = 1 and kind = 'chat' and updated_at < :before and not exists "
        f"(select 1 from tasks t where t.session = s.uid and {since.format('t.ended_at')}) and not exists "
        f"(select 1 from jobs j where j.session = s.uid and {since.format('j.completed_at')}) "
        "order by updated_at limit :limit",
        before=before,
        limit=limit,
    )
    return [Session.of(row) for row in rows]


def of_job(tx: Tx, owner: str, job_ids: list[str]) -> list[str]:
    """The sessions in which these jobs themselves worked, as uids."""
    rows = tx.q(
        "select uid from sessions where owner = :owner and id in (select :prefix || value from json_each(:ids))",
        owner=owner,
        prefix=BACKGROUND,
        ids=json.dumps(job_ids),
    )
    return [row["uid"] for row in rows]
