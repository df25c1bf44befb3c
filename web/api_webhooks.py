"""Webhooks and their deliveries over HTTP: `/api/webhooks`. What has become of each call, and calling again by hand.

Read and changed as the caller; another's webhooks do not exist. Token and credentials are never shown.
"""

import json
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from background import queue, webhooks
from background.database import Row, Tx
from background.times import rfc3339, rfc3339_or_none
from background.webhooks import Call as Delivery
from background.webhooks import Webhook
from web.door import Call, Endpoint, Json, door
from web.house import House
from web.paging import bad, choice, decode_cursor, encode_cursor, number

# What a run's state means for a delivery.
STATES = {
    "waiting": "waiting",
    "queued": "due",
    "running": "calling",
    "done": "delivered",
    "failed": "dead",
    "canceled": "canceled",
}
NAMED = {shown: state for state, shown in STATES.items()}


async def list_webhooks(call: Call) -> Json:
    limit = number(call.query, "limit", 50, 1, 200)
    found = await call.db.read(_page, call.owner, limit + 1, decode_cursor(call.query, int, str, str))
    page = found[:limit]
    last = page[-1][0] if page else None
    more = encode_cursor(last.created_at, last.task_id, last.id) if last and len(found) > limit else ""
    return {"webhooks": [_webhook(webhook, counts) for webhook, counts in page], "next_cursor": more}


def _page(tx: Tx, owner: str, limit: int, before: Any) -> list[tuple[Webhook, dict[str, int]]]:
    return [(webhook, webhooks.counts(tx, webhook)) for webhook in webhooks.page(tx, owner, limit, before)]


def _webhook(webhook: Webhook, counts: dict[str, int]) -> Json:
    return {
        "task_id": webhook.task_id,
        "id": webhook.id,
        "url": webhook.url,
        "created_at": rfc3339(webhook.created_at),
        "deliveries": {shown: counts.get(state, 0) for state, shown in STATES.items()},
    }


async def list_deliveries(call: Call) -> Json:
    limit = number(call.query, "limit", 50, 1, 200)
    state = choice(call.query, "state", tuple(NAMED))
    before = decode_cursor(call.query, int)
    found = await call.db.read(
        _deliveries,
        call.owner,
        *_named(call),
        limit + 1,
        before[0] if before else webhooks.NEWEST,
        NAMED.get(state or ""),
    )
    page = found[:limit]
    more = encode_cursor(page[-1][0]) if len(found) > limit else ""
    return {"deliveries": [delivery for _, delivery in page], "next_cursor": more}


def _deliveries(
    tx: Tx, owner: str, task_id: str, webhook_id: str, limit: int, before: int, state: str | None
) -> list[tuple[int, Json]]:
    webhook = webhooks.get(tx, owner, task_id, webhook_id)
    return [(row["id"], _delivery(tx, row)) for row in webhooks.calls(tx, webhook, limit, before, state)]


def _delivery(tx: Tx, row: Row) -> Json:
    """`id` is what the receiver gets as `X-Outrider-Delivery`, `event` its end; a call by hand has the same ones."""
    delivery = Delivery(**json.loads(row["params"]))
    return {
        "id": delivery.delivery,
        "event": delivery.event,
        "by_hand": delivery.again > 0,
        "state": STATES[row["state"]],
        "attempts": row["attempt"],
        "last_error": queue.last_error(tx, row),
        "due_at": rfc3339(row["due_at"]) if row["ended_at"] is None else None,
        "created_at": rfc3339(row["created_at"]),
        "ended_at": rfc3339_or_none(row["ended_at"]),
    }


async def call_again(call: Call) -> Response:
    event = call.request.path_params["event"]
    if not all(part.isascii() and part.isdigit() for part in event.split(".")):
        raise bad("event", "two numbers with a dot between")
    return JSONResponse(await call.db.write(_call_again, call.owner, *_named(call), event), 202)


def _call_again(tx: Tx, owner: str, task_id: str, webhook_id: str, event: str) -> Json:
    return _delivery(tx, webhooks.call_again(tx, owner, task_id, webhook_id, event))


def _named(call: Call) -> tuple[str, str]:
    return call.request.path_params["task"], call.request.path_params["webhook"]


def routes(house: House) -> list[BaseRoute]:
    one = "/api/webhooks/{task}/{webhook}/deliveries"
    table: list[tuple[str, str, Endpoint]] = [
        ("GET", "/api/webhooks", list_webhooks),
        ("GET", one, list_deliveries),
        ("POST", f"{one}/{{event}}/again", call_again),
    ]
    return [Route(path, door(house, endpoint), methods=[method]) for method, path, endpoint in table]
