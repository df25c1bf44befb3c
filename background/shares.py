"""Shares: who else may read a session, or speak in it. Owns `shares` and `share_uses`.

A share is a proof that its session's owner hands on. It opens that one session and nothing else, until it is over,
revoked or its session erased; each use of it is counted, by whom and when. What it lets anybody do is decided elsewhere.
"""

import json
from dataclasses import dataclass
from typing import Any

from background import proofs
from background.database import Row, Tx
from background.errors import Fault, not_found
from background.limits import SECOND
from background.sessions import Session

KIND = "shr"
MOST = 200  # of a session, with those that are over and not forgotten yet
FORGOTTEN_AFTER = 30 * 24 * 3600 * SECOND


@dataclass(frozen=True)
class Share:
    """A share, with the id and the owner of its session; `uid` is the session's own."""

    id: str
    uid: str
    session: str
    owner: str
    writable: bool
    created_at: int
    expires_at: int
    revoked_at: int | None

    @classmethod
    def of(cls, row: Row) -> "Share":
        given: dict[str, Any] = {name: row[name] for name in cls.__dataclass_fields__}
        return cls(**given | {"writable": row["writable"] == 1})


@dataclass(frozen=True)
class Use:
    """How often somebody has used a share, and when first and last."""

    caller: str
    uses: int
    first_at: int
    last_at: int


_SELECT = (
    "select h.id, s.uid, s.id as session, s.owner, h.writable, h.created_at, h.expires_at, h.revoked_at, h.digest "
    "from shares h join sessions s on s.uid = h.session"
)
_HOLDS = "h.revoked_at is null and h.expires_at > :now"


def make(tx: Tx, session: Session, *, writable: bool, lasts_s: int) -> tuple[Share, str]:
    """A new share of a session, and the text that is shown this once. Raises faults: conflict, limit."""
    if session.kind != "chat":
        raise Fault("conflict", "A job's own session is not shared; share the one that sent the job out.")
    if session.incognito:
        raise Fault("conflict", "An incognito session is shared with nobody.")
    _forget_old(tx, session.uid)
    there = tx.value("select count(*) from shares where session = :uid", uid=session.uid)
    if there >= MOST:
        raise Fault("limit", f"A session has {MOST} shares at most, with those that ended in the last 30 days.")
    proof = proofs.new(KIND)
    tx.x(
        "insert into shares (id, session, digest, writable, created_at, expires_at) "
        "values (:id, :uid, :digest, :writable, :now, :expires)",
        id=proof.id,
        uid=session.uid,
        digest=proof.digest,
        writable=writable,
        now=tx.now,
        expires=tx.now + lasts_s * SECOND,
    )
    return get(tx, session, proof.id), proof.text


def _forget_old(tx: Tx, uid: str) -> None:
    over = "select id from shares where session = :uid and min(expires_at, coalesce(revoked_at, expires_at)) < :before"
    given = {"uid": uid, "before": tx.now - FORGOTTEN_AFTER}
    tx.x(f"delete from share_uses where share in ({over})", **given)
    tx.x(f"delete from shares where id in ({over})", **given)


def get(tx: Tx, session: Session, share_id: str) -> Share:
    """A share of this session. Raises a `not_found` fault."""
    row = tx.one(f"{_SELECT} where h.id = :id and h.session = :uid", id=share_id, uid=session.uid)
    if row is None:
        raise not_found("share")
    return Share.of(row)


def of_session(tx: Tx, session: Session) -> list[tuple[Share, list[Use]]]:
    """All shares of a session, the newest first, each with who has used it."""
    rows = tx.q(f"{_SELECT} where h.session = :uid order by h.created_at desc, h.id desc", uid=session.uid)
    used: dict[str, list[Use]] = {row["id"]: [] for row in rows}
    sql = "select * from share_uses where share in (select value from json_each(:ids)) order by last_at desc, caller"
    for use in tx.q(sql, ids=json.dumps(list(used))):
        used[use["share"]].append(Use(use["caller"], use["uses"], use["first_at"], use["last_at"]))
    return [(Share.of(row), used[row["id"]]) for row in rows]


def revoke(tx: Tx, session: Session, share_id: str) -> None:
    """From the commit on it opens nothing. Twice is once. Raises a `not_found` fault."""
    get(tx, session, share_id)
    tx.x("update shares set revoked_at = coalesce(revoked_at, :now) where id = :id", id=share_id, now=tx.now)
    tx.ring("tokens")


def use(tx: Tx, text: str, caller: str) -> Share | None:
    """The share that a caller shows, and that he did; None for one that was never made, was altered, or is over."""
    proof = proofs.parse(KIND, text)
    if proof is None:
        return None
    row = tx.one(f"{_SELECT} where h.id = :id and {_HOLDS}", id=proof.id, now=tx.now)
    right = proofs.holds(proof, row["digest"] if row else None)
    if row is None or not right:
        return None
    tx.x(
        "insert into share_uses (share, caller, uses, first_at, last_at) values (:share, :caller, 1, :now, :now) "
        "on conflict (share, caller) do update set uses = uses + 1, last_at = excluded.last_at",
        share=proof.id,
        caller=caller,
        now=tx.now,
    )
    return Share.of(row)


def stands(tx: Tx, share_id: str) -> bool:
    """Whether a share that was shown before still opens its session."""
    return tx.one(f"select 1 from shares h where h.id = :id and {_HOLDS}", id=share_id, now=tx.now) is not None


def open_to_others(tx: Tx, session: str) -> bool:
    """Whether somebody else may speak in this session now."""
    holds = f"select 1 from shares h where h.session = :session and h.writable = 1 and {_HOLDS}"
    return tx.one(holds, session=session, now=tx.now) is not None


def erase(tx: Tx, uids: str) -> None:
    """Take away all shares of these sessions (a JSON list of uids)."""
    of_them = "select id from shares where session in (select value from json_each(:uids))"
    tx.x(f"delete from share_uses where share in ({of_them})", uids=uids)
    tx.x("delete from shares where session in (select value from json_each(:uids))", uids=uids)
    tx.ring("tokens")
