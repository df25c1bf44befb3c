"""`GET /api/openapi.json`: what `/api` takes and answers, for tools that read OpenAPI 3.1; its bounds are those of the code.

One table, a row a route. It decides nothing; a test holds it against the routes that there are.
"""

import json
import re
from typing import Any, NamedTuple

from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from agent.ingest import MAX_SOURCE
from agent.spawning import MAX_BATCH, MAX_DESCRIPTION, MAX_PROMPT
from background import job_rows, ledger
from knowledge.backend import MAX_QUERY
from web import api_memory, documents
from web.api import MAX_KEY
from web.api_deliveries import KINDS as DELIVERIES
from web.api_logins import MAX_TOKEN
from web.api_sessions import MAX_TEXT
from web.api_shares import LASTS_S, MOST_S
from web.api_webhooks import NAMED
from web.claims import SESSION_ID
from web.door import Call, Json, door
from web.house import House

Schema = dict[str, Any]


class Row(NamedTuple):
    """A route: what it does, its query, its body (None: it reads none), and how it answers when all is well."""

    method: str
    path: str
    what: str
    query: dict[str, Schema] = {}  # noqa: RUF012 - never changed
    body: Schema | None = None
    status: int = 200
    media: str = "application/json"


def _text(most: int | None = None, least: int = 0) -> Schema:
    return {"type": "string"} | ({"minLength": least} if least else {}) | ({"maxLength": most} if most else {})


def _number(default: int, most: int, least: int = 1) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, "default": default}


def _one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def _object(required: tuple[str, ...] = (), **fields: Schema) -> Schema:
    return {"type": "object", "properties": fields, "required": list(required)}


def _optional(schema: Schema) -> Schema:
    return schema | {"type": [schema["type"], "null"]}


FLAG: Schema = {"type": "boolean"}
CLOSED: Schema = {"additionalProperties": False}
ERROR = _object(
    ("error",), error=_object(("code", "message", "details"), code=_text(), message=_text(), details=_object())
)
HTML = {"html": FLAG}
CURSOR = {"cursor": _text()}
PAGE = {"limit": _number(50, 200), **CURSOR}
SESSION: Schema = {"type": "string", "pattern": f"^{SESSION_ID.pattern}$"}
JOB = {
    "prompt": _text(MAX_PROMPT, 1),
    "description": _optional(_text(MAX_DESCRIPTION)),
    "subagent_type": _optional(_text(64)),
    "key": _optional(_text(MAX_KEY)),
}
ONE_JOB = _object(("session", "prompt"), session=SESSION, incognito=FLAG, **JOB) | CLOSED
LISTED = {"type": "array", "items": _object(("prompt",), **JOB) | CLOSED, "minItems": 1, "maxItems": MAX_BATCH}
ASKED = _object(("prompt",), prompt=_text(MAX_PROMPT, 1)) | CLOSED
MANY_JOBS = _object(("session", "jobs"), session=SESSION, jobs=LISTED, incognito=FLAG) | CLOSED
MESSAGE = _object(
    text=_text(MAX_TEXT),
    data={"description": "a form's answer, or structured data for a profile that takes it"},
    message_id=_optional(_text(256)),
    task_id=_optional(_text(256)),
    skill=_optional(_text(64)),
    question=_optional(_text(256)),
    steer=FLAG,
)
SHARE = _object(writable=FLAG, expires_in_s=_number(LASTS_S, MOST_S))
TITLED = {"name": _text(documents.MAX_NAME, 1), "heading": _optional(_text(documents.MAX_NAME))}
TEXT = _object(("name", "text"), text=_text(documents.MAX_TEXT, 1), **TITLED) | CLOSED
FILE = (
    _object(
        ("name", "content", "media_type"),
        content=_text(documents.MAX_CONTENT, 1),
        media_type=_text(documents.MAX_NAME, 1),
        **TITLED,
    )
    | CLOSED
)
DOCUMENT = {"oneOf": [TEXT, FILE]}
SOURCE = _object(
    ("session", "source"), session=SESSION, source=_text(MAX_SOURCE, 1), key=_optional(_text(documents.MAX_NAME))
)

# fmt: off
TABLE = (
    Row("GET", "/api/background", "jobs, newest first", PAGE | HTML | {
        "session": _text(), "status": _one_of(*job_rows.STATUSES), "batch": _text(), "dismissed": FLAG,
    }),
    Row("POST", "/api/background", "sends out a job, or a batch of them", body={"oneOf": [ONE_JOB, MANY_JOBS]}, status=202),
    Row("GET", "/api/background/{id}", "a job, with its report"),
    Row("GET", "/api/background/{id}/report", "the report itself", {"download": FLAG} | HTML, media="text/markdown"),
    Row("DELETE", "/api/background/{id}/report", "erases the report", status=202),
    Row("GET", "/api/background/{id}/story", "what became of a job, in order"),
    Row("POST", "/api/background/{id}/cancel", "cancels a job"),
    Row("POST", "/api/background/{id}/dismiss", "hides a job that has ended"),
    Row("POST", "/api/background/{id}/retry", "a new attempt", status=202),
    Row("POST", "/api/background/{id}/ask", "asks the worker of a job that has ended", body=ASKED, status=202),
    Row("GET", "/api/batches/{id}", "a batch"),
    Row("GET", "/api/sessions", "chats, the latest first", PAGE),
    Row("POST", "/api/sessions", "a new session", body=_object(id=_optional(SESSION), incognito=FLAG), status=201),
    Row("POST", "/api/sessions/import", "takes in a snapshot", {"id": SESSION}, _object(), 201),
    Row("GET", "/api/sessions/{id}", "a session"),
    Row("DELETE", "/api/sessions/{id}", "erases a session", status=202),
    Row("GET", "/api/sessions/{id}/messages", "the log", CURSOR | HTML | {
        "limit": _number(100, 200), "before": {"type": "integer", "minimum": 1},
    }),
    Row("POST", "/api/sessions/{id}/messages", "says something", body=MESSAGE, status=202),
    Row("GET", "/api/sessions/{id}/memory", "what of memory its turns were given, the latest first", PAGE),
    Row("GET", "/api/sessions/{id}/memory/{use}", "one of these, with a snippet"),
    Row("POST", "/api/sessions/{id}/stop", "cancels the session's jobs"),
    Row("POST", "/api/sessions/{id}/tasks/{task_id}/cancel", "cancels a turn"),
    Row("DELETE", "/api/sessions/{id}/tasks/{task_id}", "erases a turn", status=202),
    Row("GET", "/api/sessions/{id}/tasks/{task_id}/artifacts/{artifact}/{part}", "what is more than text in an answer",
        media="*/*"),
    Row("GET", "/api/sessions/{id}/export", "a snapshot"),
    Row("POST", "/api/sessions/{id}/copy", "copies a session", body=_object(id=_optional(SESSION)), status=201),
    Row("GET", "/api/sessions/{id}/shares", "who may read or speak here"),
    Row("POST", "/api/sessions/{id}/shares", "a new share; its token is told once", body=SHARE, status=201),
    Row("DELETE", "/api/sessions/{id}/shares/{share}", "revokes a share", status=204),
    Row("GET", "/api/memory", "what is remembered: facts, or summaries of sessions", PAGE | {"kind": _one_of(*api_memory.KINDS)}),
    Row("DELETE", "/api/memory/{id}", "removes a fact, or a summary", status=204),
    Row("GET", "/api/knowledge/search", "searches reports and documents", {
        "q": _text(MAX_QUERY, 1), "limit": _number(10, 50), "session": _text(), "min_trust": _number(1, 3),
        "source_type": _one_of(*documents.SOURCE_TYPES),
    }),
    Row("GET", "/api/knowledge/documents", "documents taken in by hand", PAGE),
    Row("POST", "/api/knowledge/documents", "takes in a document", body=DOCUMENT, status=201),
    Row("POST", "/api/knowledge/ingest", "has a job take in a page or files", body=SOURCE, status=202),
    Row("DELETE", "/api/knowledge/documents/{id}", "removes a document", status=204),
    Row("GET", "/api/webhooks", "webhooks", PAGE),
    Row("GET", "/api/webhooks/{task}/{webhook}/deliveries", "a webhook's calls", PAGE | {"state": _one_of(*NAMED)}),
    Row("POST", "/api/webhooks/{task}/{webhook}/deliveries/{event}/again", "calls once more", status=202),
    Row("POST", "/api/webhooks/{task}/{webhook}/deliveries/{event}/discard", "gives a dead call up"),
    Row("GET", "/api/deliveries", "what has become of briefings, and which webhook calls are dead", PAGE | {
        "kind": _one_of(*DELIVERIES), "state": _one_of(*ledger.STATES),
    }),
    Row("POST", "/api/deliveries/{id}/replay", "tells once more what no turn could", status=202),
    Row("POST", "/api/deliveries/{id}/discard", "gives up telling"),
    Row("GET", "/api/events", "events as they happen", {"session": _text(), "ticket": _text()}, media="text/event-stream"),
    Row("POST", "/api/events/ticket", "a ticket for the event stream", status=201),
    Row("GET", "/api/login", "who the caller is"),
    Row("POST", "/api/login", "a cookie for a token", body=_object(("token",), token=_text(MAX_TOKEN, 1))),
    Row("DELETE", "/api/login", "takes the cookie away", status=204),
    Row("GET", "/api/status", "workers, queue, stores"),
    Row("GET", "/api/openapi.json", "this document"),
)
# fmt: on


def document(address: str, version: str) -> Json:
    """The OpenAPI document of the server at this address."""
    paths: dict[str, Json] = {}
    for row in TABLE:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Outrider", "version": version, "description": "See docs/api.md."},
        "servers": [{"url": address}],
        "security": [{}, {"bearer": []}],
        "paths": paths,
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(row: Row) -> Json:
    named = [_parameter("path", name, _text()) for name in re.findall(r"\{(\w+)\}", row.path)]
    asked = [_parameter("query", name, schema) for name, schema in row.query.items()]
    made: Json = {
        "summary": row.what,
        "parameters": [*named, *asked],
        "responses": {str(row.status): _answer(row), "default": _content("what went wrong", ERROR)},
    }
    if row.body is not None:
        must = bool(row.body.get("required", "oneOf" in row.body))
        made["requestBody"] = {"required": must, "content": {"application/json": {"schema": row.body}}}
    return made


def _parameter(place: str, name: str, schema: Schema) -> Json:
    return {"in": place, "name": name, "required": place == "path", "schema": schema}


def _answer(row: Row) -> Json:
    if row.status == 204:
        return {"description": row.what}
    return _content(row.what, {"type": "object"} if row.media == "application/json" else {}, row.media)


def _content(what: str, schema: Schema, media: str = "application/json") -> Json:
    return {"description": what, "content": {media: {"schema": schema}}}


def routes(house: House, version: str) -> list[BaseRoute]:
    written = json.dumps(document(house.settings.address, version), ensure_ascii=False)

    async def described(call: Call) -> Response:
        return Response(written, media_type="application/json")

    return [Route("/api/openapi.json", door(house, described), methods=["GET"])]
