"""A browser's way in, over HTTP: `/api/login` and `/api/events/ticket`. Who is let in is decided by tokens alone.

The cookie is out of a script's reach and never sent along from another page; it is given for a token, and for nothing else.
"""

from typing import Any, Literal

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from web import acting, logins
from web.a2a_errors import A2AError
from web.access import LOGIN_PATH
from web.callers import TOKEN_NOT_HELD, audit
from web.door import NO_STORE, Call, Endpoint, door, text
from web.house import House
from web.logins import COOKIE, LOGIN_S, TICKET_S

MAX_TOKEN = 256
PATH = LOGIN_PATH


async def who(call: Call) -> dict[str, Any]:
    """The user behind the request, and whether a token is needed at all. 401 where there is none."""
    caller = await call.house.callers.of(call.request.headers.raw)
    return {"user": caller.owner, "required": call.house.callers.required}


async def log_in(call: Call) -> Response:
    body = await call.body()
    token = text(body, "token", MAX_TOKEN, required=True) or ""
    login = await call.db.read(logins.log_in, token.strip())
    if login is None:
        audit.warning("refused a login: the access token does not hold")
        raise A2AError("UNAUTHENTICATED", TOKEN_NOT_HELD)
    await call.house.callers.note_use(login.token)
    answer = JSONResponse({"user": login.token.owner, "required": True}, headers=NO_STORE)
    _set_cookie(call, answer, login.cookie, LOGIN_S)
    return answer


async def log_out(call: Call) -> Response:
    answer = Response(status_code=204, headers=NO_STORE)
    _set_cookie(call, answer, "", 0)
    return answer


def _set_cookie(call: Call, answer: Response, value: str, lasts_s: int) -> None:
    secure = call.house.settings.address.startswith("https://")
    strict: Literal["strict"] = "strict"
    answer.set_cookie(COOKIE, value, max_age=lasts_s, httponly=True, samesite=strict, secure=secure)


async def ticket(call: Call) -> Response:
    """For an event stream that cannot carry a header: good for half a minute, as `ticket` in its address.

    It stands for its caller alone, so who shows a share has none to get.
    """
    acting.alone(call.caller, changes=True)
    made = await call.db.read(logins.ticket, call.caller)
    return JSONResponse({"ticket": made, "expires_in_s": TICKET_S}, 201, NO_STORE)


def routes(house: House) -> list[BaseRoute]:
    table: list[tuple[str, str, Endpoint]] = [
        ("GET", PATH, who),
        ("POST", PATH, log_in),
        ("DELETE", PATH, log_out),
        ("POST", "/api/events/ticket", ticket),
    ]
    return [Route(path, door(house, endpoint), methods=[method]) for method, path, endpoint in table]
