"""Logins: what a browser is given for a token, a cookie for half a day and tickets for event streams.

Both are sealed claims, so that every process of an installation can check them and nobody can make them; they stand for
the token that was shown, and end with it. No lasting token is ever in an address, and none is kept by a page.
"""

from typing import NamedTuple

from background import tokens
from background.database import Tx
from background.limits import SECOND
from background.tokens import Token
from web.caller import LOCAL, Caller
from web.sealed import opened, sealed

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
    return None if token is None else Login(token, sealed(tx, _LOGIN, "", [token.id, tx.now + LOGIN_S * SECOND]))


def by_cookie(tx: Tx, cookie: str) -> Caller | None:
    """Whose login it is; None for one that is over, or whose token was revoked."""
    claims = opened(tx, _LOGIN, "", cookie)
    if claims is None or tx.now >= claims[1]:
        return None
    token = tokens.standing(tx, claims[0])
    return None if token is None else Caller(token.owner, token=token.id, until=claims[1])


def ticket(tx: Tx, caller: Caller) -> str:
    """A ticket by which its caller is known for `TICKET_S` seconds; what it opens may last as long as the caller's own right."""
    return sealed(tx, _TICKET, "", [caller.token, caller.until, tx.now + TICKET_S * SECOND])


def by_ticket(tx: Tx, text: str) -> Caller | None:
    """Whose ticket it is; None for one that is over, or whose token was revoked."""
    claims = opened(tx, _TICKET, "", text)
    if claims is None or tx.now >= claims[2]:
        return None
    token_id, until, _ = claims
    if token_id is None:  # from before there were tokens
        return None if tokens.exist(tx) else Caller(LOCAL)
    token = tokens.standing(tx, token_id)
    return None if token is None else Caller(token.owner, token=token.id, until=until)
