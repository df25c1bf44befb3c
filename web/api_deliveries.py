"""`/api/deliveries`: what has become of the briefings that are owed, and of dead webhook calls; again, or given up by hand.

Read and changed as the caller; another's do not exist. A webhook's own calls, and calling again, are `/api/webhooks`.
"""

import json
import logging
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from background import ledger, queue, webhooks
from background.database import Row, Tx
from background.ledger import Entry
from background.times import rfc3339, rfc3339_or_none
from web.door import Call, Json, door
from web.house import House
from web.paging import choice, decode_cursor, encode_cursor, number

log = logging.getLogger("outrider.deliveries")

KINDS = ("briefing", "webhook")


async def listed(call: Call) -> Json:
    """Briefings by the age of their jobs; with `kind=webhook` the calls that were given up as dead."""
    limit = number(call.query, "limit", 50, 1, 200)
    if choice(call.query, "kind", KINDS) == "webhook":
        before = decode_cursor(call.query, int)
        dead = await call.db.read(_dead, call.owner, limit + 1, before[0] if before else webhooks.NEWEST)
        more = encode_cursor(dead[limit - 1][0]) if len(dead) > limit else ""
        return {"deliveries": [entry for _, entry in dead[:limit]], "next_cursor": more}
    state = choice(call.query, "state", ledger.STATES)
    before = decode_cursor(call.query, int, str)
    found = await call.db.read(ledger.page, call.owner, limit + 1, state=state, before=before)
    last = found[limit - 1] if len(found) > limit else None
    more = encode_cursor(last.job_created_at, last.job_id) if last else ""
    return {"deliveries": [_entry(entry) for entry in found[:limit]], "next_cursor": more}


def _entry(entry: Entry) -> Json:
    return {
        "kind": "briefing",
        "id": entry.job_id,
        "session": entry.session_id,
        "description": entry.description,
        "status": entry.status,
        "state": entry.state,
        "attempt": entry.attempt,
        "tries": entry.tries,
        "failed_turns": entry.failed_turns,
        "last_error": entry.last_error,
        "task_id": entry.task_id,
        "ended_at": rfc3339(entry.ended_at),
        "notified_at": rfc3339_or_none(entry.notified_at),
        "discarded_at": rfc3339_or_none(entry.discarded_at),
        "discarded_by": entry.discarded_by,
    }


def _dead(tx: Tx, owner: str, limit: int, before: int) -> list[tuple[int, Json]]:
    return [(row["id"], _call(tx, row)) for row in webhooks.given_up(tx, owner, limit, before)]


def _call(tx: Tx, row: Row) -> Json:
    sent = webhooks.Call(**json.loads(row["params"]))
    return {
        "kind": "webhook",
        "id": sent.delivery,
        "task_id": sent.task,
        "webhook": sent.webhook,
        "event": sent.event,
        "state": "dead" if row["state"] == "failed" else "discarded",
        "tries": row["attempt"],
        "last_error": queue.last_error(tx, row),
        "ended_at": rfc3339(row["ended_at"]),
    }


async def replay(call: Call) -> Response:
    entry = await call.db.write(ledger.replay, call.owner, call.id)
    log.info("the delivery of %s is replayed by %s", call.id, call.caller.owner)
    return JSONResponse(_entry(entry), 202)


async def discard(call: Call) -> Json:
    entry = await call.db.write(ledger.discard, call.owner, call.id, call.caller.owner)
    log.info("the delivery of %s is discarded by %s", call.id, call.caller.owner)
    return _entry(entry)


async def discard_call(call: Call) -> Json:
    place = call.request.path_params
    named = (place["task"], place["webhook"], place["event"])
    return await call.db.write(_discard_call, call.owner, named, call.caller.owner)


def _discard_call(tx: Tx, owner: str, named: tuple[str, str, str], by: str) -> Json:
    return _call(tx, webhooks.discard(tx, owner, *named, by))


def routes(house: House) -> list[BaseRoute]:
    table: list[tuple[str, str, Any]] = [
        ("GET", "/api/deliveries", listed),
        ("POST", "/api/deliveries/{id}/replay", replay),
        ("POST", "/api/deliveries/{id}/discard", discard),
        ("POST", "/api/webhooks/{task}/{webhook}/deliveries/{event}/discard", discard_call),
    ]
    return [Route(path, door(house, endpoint), methods=[method]) for method, path, endpoint in table]
