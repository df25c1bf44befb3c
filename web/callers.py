"""Who is asking: the caller behind a request's headers, on whichever binding it came, or the refusal.

It knows what callers may show: a credential of our own posts, an access token, a browser's login, a ticket; on this
machine nothing, until a token exists; and beside it a share. It looks up no session and no task, and what it refuses it does not explain.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from background import shares, tokens
from background.database import Database, Tx
from background.errors import StorageUnavailable
from background.tokens import Token
from web import logins
from web.a2a_errors import A2AError
from web.caller import LOCAL, Caller
from web.credentials import Credentials
from web.setting_fields import Settings
from web.setting_values import is_loopback

T = TypeVar("T")
audit = logging.getLogger("outrider.audit")

HERE = Caller(LOCAL)
LOOK_S = 1.0  # the safety net under the bell
HOST, ORIGIN = b"host", b"origin"
CREDENTIAL, AUTHORIZATION, COOKIES = b"x-outrider-credential", b"authorization", b"cookie"
SHARE = b"x-share-token"
# A proxy says by one of these that a request was somebody else's; which one is its configuration's.
SENT_ON = frozenset({b"forwarded", b"via", b"x-real-ip", b"x-client-ip", b"true-client-ip", b"cf-connecting-ip"})
READ = frozenset({HOST, ORIGIN, CREDENTIAL, AUTHORIZATION, COOKIES, SHARE})
TWICE = b""  # what can be read in two ways is good for nothing
NEEDED = (
    "An access token is needed: Authorization: Bearer TOKEN. "
    "The operator makes one with: outrider token create --user NAME"
)
NOT_HELD = "The {} does not hold: it is over or revoked, was altered, or is another server's"
TOKEN_NOT_HELD = NOT_HELD.format("access token")


class Asked(NamedTuple):
    """What a request's headers say of its caller: each header of `READ` that was sent, and whether a proxy sent it on."""

    shown: dict[bytes, bytes]
    forwarded: bool
    ticket: str | None = None

    @classmethod
    def by(cls, headers: Iterable[tuple[bytes, bytes]]) -> "Asked":
        """Of headers with names in lower case."""
        shown: dict[bytes, bytes] = {}
        forwarded = False
        for name, value in headers:
            if name in READ:
                shown[name] = TWICE if name in shown else value
            elif name in SENT_ON or name.startswith(b"x-forwarded-"):
                forwarded = True
        return cls(shown, forwarded)

    @property
    def bearer(self) -> str | None:
        """The token that is shown; None where none is."""
        value = self.shown.get(AUTHORIZATION)
        if value is None:
            return None
        scheme, _, text = value.decode("latin-1").partition(" ")
        return text.strip() if scheme.lower() == "bearer" or not value else None

    @property
    def login(self) -> str | None:
        """The cookie of a login. A browser sends it along by itself, so one that does not hold is as good as none."""
        for pair in self.shown.get(COOKIES, b"").decode("latin-1").split(";"):
            name, _, value = pair.strip().partition("=")
            if name == logins.COOKIE and value:
                return value
        return None


class Callers:
    """Finds callers. `required` says that without a token nobody is let in; it is never taken back.

    A token that is shown is looked up each time, so that a revoked one ends with the commit that revokes it. That the
    first token was made in another process is heard within a moment, a second at most.
    """

    def __init__(self, db: Database, credentials: Credentials, settings: Settings) -> None:
        self._db = db
        self._credentials = credentials
        names = (settings.host, urlsplit(settings.address).hostname or "")
        self.required = not all(map(is_loopback, names))

    async def of(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """The caller behind these headers (names in lower case). Raises A2AError `UNAUTHENTICATED`."""
        return await self.behind(Asked.by(headers))

    async def behind(self, asked: Asked) -> Caller:
        """The same, of headers that were read already."""
        credential = asked.shown.get(CREDENTIAL)
        if credential is not None:
            return self._posted(credential)
        caller = await self._user(asked)
        share = asked.shown.get(SHARE)
        return caller if share is None else await self._with_share(caller, share)

    async def _user(self, asked: Asked) -> Caller:
        bearer = asked.bearer
        if bearer is not None:
            return await self._holder(bearer)
        if asked.ticket is not None:
            return _held(await self._db.read(logins.by_ticket, asked.ticket), "ticket")
        if not self.required and not asked.forwarded:
            return HERE
        login = asked.login
        caller = None if login is None else await self._db.read(logins.by_cookie, login)
        if caller is None:
            raise A2AError("UNAUTHENTICATED", NEEDED)
        return caller

    def _posted(self, credential: bytes) -> Caller:
        caller = self._credentials.check(credential, self._db.now())
        if caller is None:
            audit.warning("refused a credential that does not hold")
            raise A2AError("UNAUTHENTICATED")
        return caller

    async def _holder(self, bearer: str) -> Caller:
        token = _held(await self._db.read(tokens.shown, bearer), "access token")
        await self.note_use(token)
        return Caller(token.owner, token=token.id)

    async def _with_share(self, caller: Caller, text: bytes) -> Caller:
        """Each use is written down before anything is read."""
        found = await self._db.write(shares.use, text.decode("latin-1").strip(), caller.owner)
        return caller._replace(share=_held(found, "share token"))

    async def note_use(self, token: Token) -> None:
        """That the token was used now, as exactly as that is kept."""
        if tokens.is_stale(token, self._db.now()):
            with suppress(StorageUnavailable):  # a full disk keeps nobody from reading
                await self._db.write(tokens.used, token.id)

    async def look(self) -> None:
        """Whether tokens are needed by now."""
        self.required = self.required or await self._db.read(tokens.exist)

    async def watch(self) -> None:
        """Hear of the first token, whichever process makes it."""
        with self._db.bell.listen("tokens") as ear:
            while not self.required:
                await ear.wait(LOOK_S)
                with suppress(StorageUnavailable):  # found at the next look
                    await self.look()


def _held(found: T | None, what: str) -> T:
    """What was shown, if it holds."""
    if found is None:
        audit.warning("refused: the %s does not hold", what)
        raise A2AError("UNAUTHENTICATED", NOT_HELD.format(what))
    return found


def require_standing(tx: Tx, caller: Caller) -> None:
    """For what stays open longer than a request: raises `UNAUTHENTICATED` once what let its caller in does not hold any more."""
    over = caller.until is not None and tx.now >= caller.until
    if over or (caller.token is not None and tokens.standing(tx, caller.token) is None):
        raise A2AError("UNAUTHENTICATED", TOKEN_NOT_HELD)
    if caller.share is not None and not shares.stands(tx, caller.share.id):
        raise A2AError("UNAUTHENTICATED", NOT_HELD.format("share token"))
