"""The knowledge store over HTTP: searching it, documents by hand, and the project's own docs at the first start."""

import base64
import logging
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from agent import spawning
from agent.converting import Unreadable, text_of
from agent.ingest import KEY, SOURCE_TYPE, Sources, document
from agent.profiles import CHAT
from background import sessions
from background.database import Tx
from background.errors import Fault, not_found
from background.job_rows import Job
from background.text import clean
from background.times import rfc3339, rfc3339_or_none
from knowledge import trust
from knowledge.backend import Backend, BadQuery, Hit, Stored
from web.door import Call, Json, door, session_id, text
from web.house import House
from web.paging import bad, choice, number

log = logging.getLogger("outrider.documents")

REPORT = "background_report"
SOURCE_TYPES = (REPORT, SOURCE_TYPE)
OWN_DOCS = "outrider docs"
HERE = Path(__file__).parent  # docs/ and the README are part of the package, by links
MAX_NAME = 500
MAX_TEXT = 4_000_000
MAX_CONTENT = 4_000_000  # of base64: a file of 3 MB


async def search(call: Call) -> Json:
    session = call.query.get("session")
    owner = call.owner_in(session)
    source_type = choice(call.query, "source_type", SOURCE_TYPES)
    if owner != call.caller.owner and source_type not in (None, REPORT):
        return {"hits": []}  # a document's name may be that of the session; what was shared are its reports
    hits = await call.house.knowledge.search(
        call.query.get("q", ""),
        owner,
        limit=number(call.query, "limit", 10, 1, 50),
        session=session,
        source_type=REPORT if owner != call.caller.owner else source_type,
        min_trust=number(call.query, "min_trust", 1, 1, 3),
    )
    return {"hits": [hit_json(hit) for hit in hits]}


def hit_json(hit: Hit) -> Json:
    """HIT."""
    return {
        "id": hit.id,
        "heading": hit.heading,
        "snippet": hit.snippet,
        "score": hit.score,
        "source": hit.source,
        "source_type": hit.source_type,
        "trust": hit.trust,
        "trust_label": hit.trust_label,
        "job_id": hit.job_id,
        "created_at": rfc3339_or_none(hit.created_at),
        **({"made_of": hit.made_of} if hit.made_of else {}),  # only of what was made of something that has a tier
    }


async def add(call: Call) -> Response:
    """Take a text in under its name, in place of what had that name."""
    body = await call.body()
    name = text(body, "name", MAX_NAME, required=True) or ""
    heading, content = await _given(body)
    made = document(call.owner, name, content, trust.OPERATOR, call.db.now(), heading)
    chunks = await call.house.knowledge.put(made)
    return JSONResponse({"name": name, "chunks": chunks}, 201)


async def _given(body: Json) -> tuple[str, str]:
    """Heading and text of a document: as they are given, or what can be read of a file's `content` (base64)."""
    heading = text(body, "heading", MAX_NAME) or ""
    if "content" not in body:
        return heading, text(body, "text", MAX_TEXT, required=True) or ""
    media_type = text(body, "media_type", MAX_NAME, required=True) or ""
    try:
        content = base64.b64decode(text(body, "content", MAX_CONTENT, required=True) or "", validate=True)
    except ValueError:
        raise bad("content", "base64") from None
    try:
        made = await text_of(media_type.lower(), content)
    except Unreadable as why:
        raise Fault("refused", f"The file was not taken in: {why}.", field="content") from None
    return heading or clean(made.title), clean(made.text)[:MAX_TEXT]


async def ingest(call: Call) -> Response:
    """Send out a job that takes in a page of the web, or what lies below the operator's folders."""
    call.house.require_open()
    body = await call.body()
    session = session_id(body.get("session"), "session")
    key = text(body, "key", MAX_NAME)
    keyed = f"api:{key}" if key else f"once:{secrets.token_hex(12)}"
    level = call.house.offers[CHAT].level
    job = await call.db.write(_send_out, call.owner, session, keyed, body.get("source"), call.house.sources, level)
    return JSONResponse({**job.public(named=True), "prompt": job.prompt}, 202)


def _send_out(tx: Tx, owner: str, session: str, key: str, source: object, sources: Sources, level: str) -> Job:
    found = sessions.get(tx, owner, session)
    spec = sources.spec(source, incognito=found.incognito)
    batch_id = f"batch-{secrets.token_hex(8)}"
    return spawning.send_out(tx, found, batch_id, [(key, spec)], closed=True, level=level)[0]


async def listed(call: Call) -> dict[str, Any]:
    limit, cursor = number(call.query, "limit", 50, 1, 200), call.query.get("cursor", "")
    try:
        page = await call.house.knowledge.documents(call.owner, limit, cursor, source_type=SOURCE_TYPE)
    except BadQuery:
        raise bad("cursor", "one that a page came with") from None
    return {"documents": [_json(stored) for stored in page.documents], "next_cursor": page.next_cursor}


async def remove(call: Call) -> Response:
    if not await call.house.knowledge.remove(call.owner, call.id):
        raise not_found("document")
    return Response(status_code=204)


def _json(stored: Stored) -> dict[str, Any]:
    return {
        "id": stored.id,
        "name": stored.key.removeprefix(KEY),
        "heading": stored.heading,
        "source": stored.source,
        "shared": stored.owner is None,
        "trust": stored.trust,
        "trust_label": stored.trust_label,
        "chars": stored.chars,
        "chunks": stored.chunks,
        "created_at": rfc3339(stored.created_at),
        "superseded_at": rfc3339_or_none(stored.superseded_at),
    }


async def take_in_own_docs(store: Backend, now: int) -> int:
    """The README and the pages of docs/, shared: all at the first start, and what it did not come to at the next.

    Returns how many.
    """
    pages = [page for page in (HERE / "README.md", *sorted((HERE / "docs").glob("*.md"))) if page.is_file()]
    shared = await store.documents(OWN_DOCS, 200, source=OWN_DOCS)  # whoever asks sees what is shared
    there = {stored.key for stored in shared.documents}
    added = 0
    for page in pages:
        name = str(page.relative_to(HERE))
        if f"{KEY}{name}" not in there:
            made = document(None, name, page.read_text(encoding="utf-8"), trust.OPERATOR, now, name)
            await store.put(replace(made, source=OWN_DOCS))
            added += 1
    return added


def routes(house: House) -> list[BaseRoute]:
    path = "/api/knowledge/documents"
    return [
        Route("/api/knowledge/search", door(house, search), methods=["GET"]),
        Route("/api/knowledge/ingest", door(house, ingest), methods=["POST"]),
        Route(path, door(house, add), methods=["POST"]),
        Route(path, door(house, listed), methods=["GET"]),
        Route(f"{path}/{{id}}", door(house, remove), methods=["DELETE"]),
    ]
