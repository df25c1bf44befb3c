"""The knowledge store over HTTP: searching it, documents by hand, and the project's own docs at the first start."""

import logging
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from background.errors import not_found
from background.times import rfc3339, rfc3339_or_none
from knowledge import trust
from knowledge.backend import Backend, BadQuery, Document, Hit, Stored
from knowledge.chunking import title
from web.door import Call, Json, door, text
from web.house import House
from web.paging import bad, choice, number

log = logging.getLogger("outrider.documents")

SOURCE_TYPE = "document"
REPORT = "background_report"
SOURCE_TYPES = (REPORT, SOURCE_TYPE)
OWN_DOCS = "outrider docs"
KEY = "document:"
HERE = Path(__file__).parent  # docs/ and the README are part of the package, by links
MAX_NAME = 500
MAX_TEXT = 4_000_000


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
    content = text(body, "text", MAX_TEXT, required=True) or ""
    document = _document(call.owner, name, title(content) or name, content, call.db.now())
    chunks = await call.house.knowledge.put(document)
    return JSONResponse({"name": name, "chunks": chunks}, 201)


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


def _document(
    owner: str | None, name: str, heading: str, content: str, now: int, source: str | None = None
) -> Document:
    return Document(
        key=f"{KEY}{name}",
        owner=owner,
        source=source or name,
        source_type=SOURCE_TYPE,
        heading=heading,
        text=content,
        trust=trust.OPERATOR,
        created_at=now,
    )


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
            await store.put(_document(None, name, name, page.read_text(encoding="utf-8"), now, OWN_DOCS))
            added += 1
    return added


def routes(house: House) -> list[BaseRoute]:
    path = "/api/knowledge/documents"
    return [
        Route("/api/knowledge/search", door(house, search), methods=["GET"]),
        Route(path, door(house, add), methods=["POST"]),
        Route(path, door(house, listed), methods=["GET"]),
        Route(f"{path}/{{id}}", door(house, remove), methods=["DELETE"]),
    ]
