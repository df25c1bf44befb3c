"""Proofs: what somebody shows to be let in, made of an id and 256 random bits. Pure; it knows no table.

A proof is shown once, when it is made, and kept as its digest alone; it is looked for by its id, which is no secret.
"""

import hashlib
import hmac
import re
import secrets
from typing import NamedTuple

FORM = re.compile(r"(?P<id>(?P<kind>[a-z]{3})-[0-9a-f]{12})\.[A-Za-z0-9_-]{43}")


class Proof(NamedTuple):
    """A proof as it is shown, with the id that it begins with."""

    id: str
    text: str

    @property
    def digest(self) -> bytes:
        """What is kept of it. Plain SHA-256: there are 256 bits to guess, and no word of anybody's to try."""
        return hashlib.sha256(self.text.encode()).digest()


def new(kind: str) -> Proof:
    """A new proof of a kind (three letters): `tok-0123456789ab.` and 43 characters more."""
    proof_id = f"{kind}-{secrets.token_hex(6)}"
    return Proof(proof_id, f"{proof_id}.{secrets.token_urlsafe(32)}")


def parse(kind: str, text: str) -> Proof | None:
    """What was shown, where it looks like a proof of this kind."""
    found = FORM.fullmatch(text)
    return Proof(found["id"], text) if found and found["kind"] == kind else None


def holds(proof: Proof, digest: bytes | None) -> bool:
    """Whether the proof is that of this digest, in the same time for every answer; never where there is none."""
    return hmac.compare_digest(proof.digest, digest or bytes(32)) and digest is not None
