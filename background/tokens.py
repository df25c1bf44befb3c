"""Access tokens: who may ask at all, and as whom. Owns `tokens`.

A token stands for a user, whose name is the owner of all that is made with it. It is kept as a digest, and shown once.
From the first token on nobody is let in without one, and it stays so when all have been revoked.
"""

import re
from dataclasses import dataclass

from background import proofs
from background.database import Row, Tx
from background.errors import Fault, not_found
from background.limits import SECOND

KIND = "tok"
USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
USED_GRAIN = 3600 * SECOND  # how exactly the last use is known


@dataclass(frozen=True)
class Token:
    """What is known of a token; nothing of it lets anybody in."""

    id: str
    owner: str
    created_at: int
    used_at: int | None
    revoked_at: int | None

    @classmethod
    def of(cls, row: Row) -> "Token":
        return cls(**{name: row[name] for name in cls.__dataclass_fields__})


def require_name(owner: str) -> None:
    """Raises an `invalid` fault for what is no user's name."""
    if not USER.fullmatch(owner):
        allowed = "1 to 64 characters out of A-Z a-z 0-9 . _ @ -, the first a letter or a digit"
        raise Fault("invalid", f"A user's name has {allowed}.", field="user")


def make(tx: Tx, owner: str) -> tuple[Token, str]:
    """A new token of a user, and the text that is shown this once. Raises an `invalid` fault for what is no name."""
    require_name(owner)
    proof = proofs.new(KIND)
    tx.x(
        "insert into tokens (id, owner, digest, created_at) values (:id, :owner, :digest, :now)",
        id=proof.id,
        owner=owner,
        digest=proof.digest,
        now=tx.now,
    )
    tx.ring("tokens")
    return Token(proof.id, owner, tx.now, None, None), proof.text


def listed(tx: Tx) -> list[Token]:
    """All tokens, the newest first."""
    return [Token.of(row) for row in tx.q("select * from tokens order by created_at desc, id")]


def revoke(tx: Tx, token_id: str) -> Token:
    """From the commit on it lets nobody in. Twice is once. Raises a `not_found` fault."""
    row = tx.one(
        "update tokens set revoked_at = coalesce(revoked_at, :now) where id = :id returning *", id=token_id, now=tx.now
    )
    if row is None:
        raise not_found("token")
    tx.ring("tokens")
    return Token.of(row)


def shown(tx: Tx, text: str) -> Token | None:
    """The token that somebody shows; None for one that was never made, was altered or is revoked."""
    proof = proofs.parse(KIND, text)
    if proof is None:
        return None
    row = tx.one("select * from tokens where id = :id", id=proof.id)
    right = proofs.holds(proof, row["digest"] if row else None)
    return Token.of(row) if row and right and row["revoked_at"] is None else None


def standing(tx: Tx, token_id: str) -> Token | None:
    """The token of this id, for those to whom it was shown before; None once it is revoked."""
    row = tx.one("select * from tokens where id = :id and revoked_at is null", id=token_id)
    return Token.of(row) if row else None


def exist(tx: Tx) -> bool:
    """Whether a token was ever made."""
    return tx.one("select 1 from tokens limit 1") is not None


def hold(tx: Tx) -> bool:
    """Whether there is a token that lets somebody in."""
    return tx.one("select 1 from tokens where revoked_at is null limit 1") is not None


def is_stale(token: Token, now: int) -> bool:
    """Whether its last use is to be noted anew."""
    return token.used_at is None or now - token.used_at >= USED_GRAIN


def used(tx: Tx, token_id: str) -> None:
    tx.x("update tokens set used_at = :now where id = :id", id=token_id, now=tx.now)
