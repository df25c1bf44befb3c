"""Logins: what a browser is given for a token, a cookie for half a day and tickets for event streams.

Both are sealed claims, so that every process of an installation can check them and nobody can make them; they stand for
the token that was shown, and end with it. No lasting token is ever in an address, and none is kept by a page.
"""

import base64
import binascii
import json
from typing import Any, NamedTuple

from background import tokens
from background.database import Tx
from background.errors import Unsealable
from background.limits import SECOND
from background.tokens import Token
from web.caller import LOCAL, Caller

LOGIN_S = 12 * 3600
TICKET_S = 30
COOKIE = "outrider_login"
_LOGIN, _TICKET = "logins.cookie", "logins.ticket"  # what each is sealed for: one is never taken for the other


class Login(NamedTuple):
    """A user who has shown a token, and the cookie that stands for it."""

    token: Token
    cookie: str


def log_in(tx: Tx, text: str) -> Login | None:
    """For a token that holds."""
    token = tokens.shown(tx, text)
    return None if token is None else Login(token, _sealed(tx, _LOGIN, [token.id, tx.now + LOGIN_S * SECOND]))


def by_cookie(tx: Tx, cookie: str) -> Caller | None:
    """Whose login it is; None for one that is over, or whose token was revoked."""
    claims = _unsealed(tx, _LOGIN, cookie)
    if claims is None or tx.now >= claims[1]:
        return None
    token = tokens.standing(tx, claims[0])
    return None if token is None else Caller(token.owner, token=token.id, until=claims[1])


def ticket(tx: Tx, caller: Caller) -> str:
    """A ticket by which its caller is known for `TICKET_S` seconds; what it opens may last as long as the caller's own right."""
    return _sealed(tx, _TICKET, [caller.token, caller.until, tx.now + TICKET_S * SECOND])


def by_ticket(tx: Tx, text: str) -> Caller | None:
    """Whose ticket it is; None for one that is over, or whose token was revoked."""
    claims = _unsealed(tx, _TICKET, text)
    if claims is None or tx.now >= claims[2]:
        return None
    token_id, until, _ = claims
    if token_id is None:  # from before there were tokens
        return None if tokens.exist(tx) else Caller(LOCAL)
    token = tokens.standing(tx, token_id)
    return None if token is None else Caller(token.owner, token=token.id, until=until)


def _sealed(tx: Tx, purpose: str, claims: list[Any]) -> str:
    return base64.urlsafe_b64encode(tx.seal(purpose, "", json.dumps(claims))).decode().rstrip("=")


def _unsealed(tx: Tx, purpose: str, text: str) -> list[Any] | None:
    try:
        cell = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return json.loads(tx.unseal(purpose, "", cell))
    except (binascii.Error, ValueError, Unsealable):
        return None
