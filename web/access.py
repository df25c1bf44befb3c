"""The middleware in front of everything: where a request may come from, and who its caller is.

A web page elsewhere can make a browser call us, but it cannot forge Host and Origin; a name that a stranger's DNS points
here is not ours. Who asks is found by `web/callers.py`. What is refused here has the form of the door it came to.
"""

from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import QueryParams
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from web.a2a_errors import A2AError, headers, http_status, to_jsonrpc, to_rest
from web.a2a_faults import as_error
from web.caller import Caller
from web.callers import HOST, ORIGIN, Asked, Callers
from web.setting_fields import Settings
from web.setting_values import is_address, is_loopback

LOGIN_PATH, EVENTS_PATH, STATIC_PATH = "/api/login", "/api/events", "/static/"
# What anybody may read who reaches the address: nothing of any owner's is in it, and a proxy's health check, a client
# that looks for the card, or a page in which somebody is about to log in has no token yet.
OPEN = frozenset({"/", "/.well-known/agent-card.json", "/healthz", "/readyz", LOGIN_PATH})


def is_open(path: str) -> bool:
    """Whether this address asks nobody who he is; its handler finds no caller."""
    return path in OPEN or path.startswith(STATIC_PATH)


def caller_of(scope: Scope) -> Caller:
    """The caller that the middleware found. KeyError where it let an open address through without one."""
    return scope["outrider.caller"]


class Access:
    """The middleware."""

    def __init__(self, app: ASGIApp, settings: Settings, callers: Callers) -> None:
        self._app = app
        self._settings = settings
        self._callers = callers
        self._public_name = urlsplit(settings.address).hostname or ""
        self._elsewhere = not is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            # No websocket is served; if one ever is, it must not be the way around this check.
            return await send({"type": "websocket.close", "code": 1008})
        try:
            asked = Asked.by(scope["headers"])
            is_free = is_open(scope["path"])
            self._check_origin(asked, is_free)
            if not is_free:
                scope["outrider.caller"] = await self._callers.behind(_with_ticket(asked, scope))
        except Exception as failure:  # noqa: BLE001 - a door: logged with an id, and only the id goes out
            return await _refusal(as_error(failure), scope, self._settings)(scope, receive, send)
        return await self._app(scope, receive, send)

    def _check_origin(self, asked: Asked, is_free: bool) -> None:
        """Raises `PERMISSION_DENIED` for a page from elsewhere, and for another's name.

        Who shows a token may call us by any name: unlike a cookie it goes along only where somebody put it, so a page
        that was led here by a name of its own has none. What is checked next is whether it holds.
        """
        host = asked.shown.get(HOST, b"")
        ours = _is_ours(host, self._public_name, self._elsewhere) or (asked.bearer is not None and not is_free)
        if not host or not ours or not _same(asked.shown.get(ORIGIN), host):
            raise A2AError("PERMISSION_DENIED", "Access denied: the request's Host or Origin is not this server's")


def _with_ticket(asked: Asked, scope: Scope) -> Asked:
    """An event stream may have its ticket in the address, and nothing else may."""
    if scope["path"] != EVENTS_PATH:
        return asked
    return asked._replace(ticket=QueryParams(scope["query_string"]).get("ticket"))


@lru_cache(maxsize=256)
def _is_ours(host: bytes, public_name: str, elsewhere: bool) -> bool:
    """Whether a Host header names this machine or the public address, on any port; cached, as every request asks.

    Where it is listened on `elsewhere` than on loopback any number will do: it is names that a stranger can point here.
    """
    text = host.decode("latin-1")
    try:
        parts = urlsplit(f"//{text}")
        _ = parts.port  # raises ValueError where it is no number
    except ValueError:
        return False
    name = parts.hostname or ""
    if parts.netloc != text or "@" in text:
        return False
    return name == public_name or is_loopback(name) or (elsewhere and is_address(name))


def _same(origin: bytes | None, host: bytes) -> bool:
    if origin is None:
        return True
    scheme, _, authority = origin.lower().partition(b"://")
    return scheme in (b"http", b"https") and authority == host.lower()


def _refusal(refused: A2AError, scope: Scope, settings: Settings) -> JSONResponse:
    if scope["path"] in ("/a2a", "/a2a/"):
        status = http_status(refused, settings.rpc_error_status)
        return JSONResponse(to_jsonrpc(refused, None), status, headers(refused))
    if scope["path"].startswith("/a2a/"):
        return JSONResponse(to_rest(refused), refused.kind.http, headers(refused))
    told = {"error": {"code": refused.reason, "message": refused.message, "details": {}}}
    return JSONResponse(told, refused.kind.http, headers(refused))
