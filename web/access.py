"""Who is asking: the check that every request passes before anything reads it, and the credentials of our own posts.

On loopback the owner is `local` and no token exists yet, so what guards is where a request comes from: a web page
elsewhere can make a browser call us, but it cannot forge Host and Origin. Where a message comes from is told by a
credential that only this process can make, never by metadata that a client can write. It looks up no session and no
task, and what it refuses it does not explain.
"""

import base64
import binascii
import hashlib
import hmac
import json
import logging
import re
import secrets
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple, get_args
from urllib.parse import unquote, urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from web.a2a_errors import A2AError, headers, http_status, invalid, to_jsonrpc, to_rest
from web.setting_values import is_loopback
from web.settings import Settings

audit = logging.getLogger("outrider.audit")

LOCAL = "local"
CREDENTIAL_HEADER = "X-Outrider-Credential"
CREDENTIAL_TTL_US = 60_000_000
RESERVED_CONTEXT = "background:"
SESSION_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
# What anybody may read who reaches the address: nothing of any owner's is in it, and a proxy's health check or a
# client that looks for the card has no token yet.
OPEN = frozenset({"/.well-known/agent-card.json", "/healthz", "/readyz"})

Origin = Literal["user", "background", "background-resume"]
RESERVED_ORIGINS = frozenset(get_args(Origin)) - {"user"}


class Caller(NamedTuple):
    """Whose request this is, and for whom it acts.

    `origin` is `user`, or for our own posts `background` (a job's dispatch) or `background-resume` (a nudge); those
    are bound to the one `session` they post into and carry the job's or batch's id as `trigger`.
    """

    owner: str
    origin: Origin = "user"
    session: str | None = None
    trigger: str | None = None


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


def is_session_id(text: str) -> bool:
    """Whether a client may give a session this id."""
    return SESSION_ID.fullmatch(text) is not None


def is_reserved(session: str) -> bool:
    """Whether this id lies in the range that only Outrider itself gives to sessions, however it is spelled."""
    return unquote(session).casefold().startswith(RESERVED_CONTEXT)


def check_claims(caller: Caller, context_id: str | None, *metadata: Mapping[str, object] | None) -> None:
    """Refuses a message that claims to come from where its caller does not: A2AError -32602, and a line in the audit.

    A user claims neither a reserved context nor a reserved `origin`; a post of our own keeps to its one session.
    """
    if caller.origin != "user":
        if context_id != caller.session:
            raise _refused_claim(caller, "message.contextId", "not the context of this credential")
        return
    if context_id is not None and is_reserved(context_id):
        raise _refused_claim(caller, "message.contextId", f"ids that begin with {RESERVED_CONTEXT} are reserved")
    if any(_claims_origin(given) for given in metadata):
        raise _refused_claim(
            caller, "message.metadata.origin", f"{' and '.join(sorted(RESERVED_ORIGINS))} are reserved"
        )


def caller_of(scope: Scope) -> Caller:
    """The caller that the middleware found. KeyError where it let an open address through without one."""
    return scope["outrider.caller"]


class Access:
    """The middleware in front of everything. `now` is the time in microseconds."""

    def __init__(self, app: ASGIApp, settings: Settings, credentials: Credentials, now: Callable[[], int]) -> None:
        self._app = app
        self._settings = settings
        self._credentials = credentials
        self._now = now
        self._public_name = urlsplit(settings.address).hostname or ""
        self._needs_token = not is_loopback(self._public_name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            # No websocket is served; if one ever is, it must not be the way around this check.
            return await send({"type": "websocket.close", "code": 1008})
        try:
            caller = self._caller(scope)
        except A2AError as refused:
            return await _refusal(refused, scope, self._settings)(scope, receive, send)
        if caller is not None:
            scope["outrider.caller"] = caller
        return await self._app(scope, receive, send)

    def _caller(self, scope: Scope) -> Caller | None:
        host = origin = credential = None
        forwarded = self._needs_token
        for name, value in scope["headers"]:
            if name == b"host":
                if host is not None:
                    raise A2AError("PERMISSION_DENIED")
                host = value
            elif name == b"origin":
                # A second one could only be there to hide the first.
                origin = value if origin is None else b"null"
            elif name == b"x-outrider-credential":
                credential = value
            elif name == b"forwarded" or name.startswith(b"x-forwarded-"):
                forwarded = True
        if host is None or not _may_host(host, self._public_name) or not _same(origin, host):
            raise A2AError("PERMISSION_DENIED", "Access denied: the request's Host or Origin is not this server's")
        if credential is not None:
            return self._posted(credential)
        if forwarded:
            if scope["path"] in OPEN:
                return None
            raise A2AError(
                "UNAUTHENTICATED", "Access denied: a forwarded request needs an access token, and this version has none"
            )
        return Caller(LOCAL)

    def _posted(self, credential: bytes) -> Caller:
        caller = self._credentials.check(credential, self._now())
        if caller is None:
            audit.warning("refused a credential that does not hold")
            raise A2AError("UNAUTHENTICATED")
        return caller


@lru_cache(maxsize=256)
def _may_host(host: bytes, public_name: str) -> bool:
    """Whether a Host header names this machine or the public address, on any port; cached, as every request asks."""
    text = host.decode("latin-1")
    try:
        parts = urlsplit(f"//{text}")
        _ = parts.port  # raises ValueError where it is no number
    except ValueError:
        return False
    name = parts.hostname or ""
    return parts.netloc == text and "@" not in text and (name == public_name or is_loopback(name))


def _same(origin: bytes | None, host: bytes) -> bool:
    if origin is None:
        return True
    scheme, _, authority = origin.lower().partition(b"://")
    return scheme in (b"http", b"https") and authority == host.lower()


def _claims_origin(metadata: Mapping[str, object] | None) -> bool:
    claimed = (metadata or {}).get("origin")
    return isinstance(claimed, str) and claimed.strip().casefold() in RESERVED_ORIGINS


def _refused_claim(caller: Caller, field: str, description: str) -> A2AError:
    audit.warning("refused a forged claim: owner=%r origin=%s field=%s", caller.owner, caller.origin, field)
    return invalid(field, description)


def _refusal(refused: A2AError, scope: Scope, settings: Settings) -> JSONResponse:
    if scope["path"] in ("/a2a", "/a2a/"):
        status = http_status(refused, settings.rpc_error_status)
        return JSONResponse(to_jsonrpc(refused, None), status, headers(refused))
    if scope["path"].startswith("/a2a/"):
        return JSONResponse(to_rest(refused), refused.kind.http, headers(refused))
    told = {"error": {"code": refused.reason, "message": refused.message, "details": {}}}
    return JSONResponse(told, refused.kind.http)
