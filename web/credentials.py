"""The credentials of our own posts: where a message comes from, said by what only this process can make.

Short-lived, for one owner, one session and one purpose. Never read out of metadata, which any client can write.
"""

import base64
import binascii
import hashlib
import hmac
import json
import secrets

from web.caller import Caller, Origin

CREDENTIAL_HEADER = "X-Outrider-Credential"
CREDENTIAL_TTL_US = 60_000_000


class Credentials:
    """Short-lived proofs for our own posts, signed with a key that dies with the process."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def issue(self, owner: str, session: str, origin: Origin, trigger: str, now: int) -> str:
        """A credential for CREDENTIAL_HEADER, good for 60 s from `now` (microseconds) and for this one session."""
        claims = json.dumps([owner, session, origin, trigger, now + CREDENTIAL_TTL_US]).encode()
        return base64.urlsafe_b64encode(self._sign(claims) + claims).decode()

    def check(self, header: str | bytes, now: int) -> Caller | None:
        """Who holds this credential; None for one that is forged, altered, expired or another process's."""
        try:
            signed = base64.b64decode(header, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        claims = signed[32:]
        if not hmac.compare_digest(self._sign(claims), signed[:32]):
            return None
        owner, session, origin, trigger, expires = json.loads(claims)
        return Caller(owner, origin, session, trigger) if now < expires else None

    def _sign(self, claims: bytes) -> bytes:
        return hmac.digest(self._key, claims, hashlib.sha256)
