"""Is it alive, is it ready, how much waits: `/healthz`, `/readyz`, `/metrics`, `/api/status`.

It reads and says; what is wrong is named with its effect.
"""

from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from background import acceptance, delivery, expenses, queue, worker
from background.database import Tx
from background.errors import Fault, StorageUnavailable
from background.limits import SECOND
from background.times import rfc3339, rfc3339_or_none
from knowledge.backend import StoreFailed
from web import metrics as figures
from web.door import Call, door
from web.house import House

DAY = 24 * 3600 * SECOND


def _snapshot(tx: Tx) -> dict[str, Any]:
    return {
        "now": tx.now,
        "workers": worker.live(tx),
        "queue": queue.depth(tx),
        "undelivered": delivery.undelivered(tx),
        "spent": expenses.since(tx, tx.now - DAY),
    }


async def problems(house: House) -> list[str]:
    """What keeps this server from doing its work, in words."""
    found = []
    try:
        await house.db.read(acceptance.require_worker)
    except Fault:
        found.append("WORKER_UNAVAILABLE: No worker is live: what is sent is refused, and what was begun waits.")
    except StorageUnavailable:
        found.append("The registry cannot be read.")
    try:
        await house.knowledge.counts()
    except StoreFailed:
        found.append("The knowledge store cannot be read: reports are not indexed and nothing is found.")
    if house.stopping:
        found.append("The server is stopping.")
    return found


async def status(call: Call) -> dict[str, Any]:
    house = call.house
    seen = await call.db.read(_snapshot)
    found = await problems(house)
    return {
        "live": not any(line.startswith("WORKER_UNAVAILABLE") for line in found),
        "workers": [_worker_json(row) for row in seen["workers"]],
        "queue": [{**dict(row), "oldest_due_at": rfc3339_or_none(row["oldest_due_at"])} for row in seen["queue"]],
        "undelivered": {
            "count": seen["undelivered"]["count"],
            "oldest_at": rfc3339_or_none(seen["undelivered"]["oldest_at"]),
            "at_next_turn": seen["undelivered"]["at_next_turn"],
        },
        "usage_of_a_day": vars(seen["spent"]),
        "stores": {"registry": {"ok": True, "bytes": _size(house.db.path)}, "knowledge": await _knowledge(house)},
        "settings": house.settings.model_dump(mode="json"),
        "problems": [*found, *house.flaws, *filter(None, [house.waits.warning])],
    }


def _worker_json(row: dict[str, Any]) -> dict[str, Any]:
    times = {name: rfc3339(row[name]) for name in ("started_at", "beat_at", "swept_at")}
    return {"id": row["id"], "host": row["host"], "pid": row["pid"], **times, "live": row["live"]}


async def _knowledge(house: House) -> dict[str, Any]:
    try:
        counts = await house.knowledge.counts()
    except StoreFailed:
        return {"ok": False}
    size = _size(house.settings.knowledge_path)
    return {"ok": True, "documents": counts.documents, "chunks": counts.chunks, "bytes": size}


def _size(path: Path) -> int:
    """Bytes of a database with its log, which can be the larger of the two."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def routes(house: House) -> list[BaseRoute]:
    async def healthz(request: Request) -> Response:
        return JSONResponse({"alive": True})

    async def readyz(request: Request) -> Response:
        ready = not await problems(house)
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def metrics(request: Request) -> Response:
        seen = await house.db.read(figures.look)
        return PlainTextResponse(figures.text(house, seen), media_type="text/plain; version=0.0.4")

    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        Route("/api/status", door(house, status)),
    ]
