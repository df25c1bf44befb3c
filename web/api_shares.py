"""The shares of a session over HTTP: `/api/sessions/{id}/shares`. They are their session's owner's to make and to end.

A share's text is in the answer to who made it, and in no other; what it opens is decided by `web/acting.py`.
"""

from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from background import sessions, shares
from background.database import Tx
from background.shares import Share, Use
from background.times import rfc3339, rfc3339_or_none
from web.door import NO_STORE, Call, Endpoint, Json, door
from web.house import House
from web.paging import bad

DAY_S = 24 * 3600
LASTS_S, MOST_S = 7 * DAY_S, 365 * DAY_S


async def list_shares(call: Call) -> Json:
    found = await call.db.read(_of_session, call.owner_of_all, call.id)
    return {"shares": [{**_json(share), "used_by": list(map(_use, used))} for share, used in found]}


def _of_session(tx: Tx, owner: str, given: str) -> list[tuple[Share, list[Use]]]:
    return shares.of_session(tx, sessions.get(tx, owner, given))


async def make_share(call: Call) -> Response:
    owner, body = call.owner_of_all, await call.body()
    writable, lasts_s = body.get("writable", False), body.get("expires_in_s", LASTS_S)
    if not isinstance(writable, bool):
        raise bad("writable", "true or false")
    if type(lasts_s) is not int or not 1 <= lasts_s <= MOST_S:
        raise bad("expires_in_s", f"a whole number of seconds from 1 to {MOST_S:,}")
    share, text = await call.db.write(_make, owner, call.id, writable, lasts_s)
    return JSONResponse({**_json(share), "token": text}, 201, NO_STORE)


def _make(tx: Tx, owner: str, given: str, writable: bool, lasts_s: int) -> tuple[Share, str]:
    return shares.make(tx, sessions.get(tx, owner, given), writable=writable, lasts_s=lasts_s)


async def revoke_share(call: Call) -> Response:
    await call.db.write(_revoke, call.owner_of_all, call.id, call.request.path_params["share"])
    return Response(status_code=204)


def _revoke(tx: Tx, owner: str, given: str, share_id: str) -> None:
    shares.revoke(tx, sessions.get(tx, owner, given), share_id)


def _json(share: Share) -> dict[str, Any]:
    return {
        "id": share.id,
        "session": share.session,
        "writable": share.writable,
        "created_at": rfc3339(share.created_at),
        "expires_at": rfc3339(share.expires_at),
        "revoked_at": rfc3339_or_none(share.revoked_at),
    }


def _use(use: Use) -> dict[str, Any]:
    times = {"first_at": rfc3339(use.first_at), "last_at": rfc3339(use.last_at)}
    return {"user": use.caller, "uses": use.uses, **times}


def routes(house: House) -> list[BaseRoute]:
    path = "/api/sessions/{id}/shares"
    table: list[tuple[str, str, Endpoint]] = [
        ("GET", path, list_shares),
        ("POST", path, make_share),
        ("DELETE", f"{path}/{{share}}", revoke_share),
    ]
    return [Route(path, door(house, endpoint), methods=[method]) for method, path, endpoint in table]
