"""The HTTP API under `/api`: sessions, jobs, batches, knowledge. Requests become transactions of the rooms below.

One table turns faults into statuses; exception texts never go out. Everything is read and changed as the caller.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from agent import spawning
from agent.spawning import MAX_BATCH, spec_of
from background import batches, jobs, results, sessions, tasks, terminal
from background.database import Row, Tx
from background.errors import Fault, StorageUnavailable, not_found
from background.jobs import Job, Spec
from background.results import Result
from background.tasks import Incoming
from background.times import rfc3339, rfc3339_or_none
from knowledge.backend import BadQuery, Hit, SearchTimeout, StoreFailed
from web.a2a_errors import A2AError
from web.a2a_message import fingerprint
from web.access import Caller, caller_of, is_reserved, is_session_id
from web.bodies import BODY_LIMIT, LongNumber, NotJson, TooDeep, decode
from web.console import HEADERS, render
from web.house import House
from web.paging import bad, choice, decode_cursor, encode_cursor, flag, number

log = logging.getLogger("outrider.api")

STATUS = {"invalid": 400, "not_found": 404, "conflict": 409, "refused": 422, "limit": 429, "unavailable": 503}
RETRY_AFTER = {"Retry-After": "5"}
NESTING = 32
MAX_KEY = 200
MAX_TEXT = 1_000_000
SOURCE_TYPES = ("background_report", "document")
Json = dict[str, Any]
Endpoint = Callable[["Call"], Awaitable[Any]]


class TooLarge(Exception):
    """A body over `BODY_LIMIT` bytes."""


class Call:
    """One request: who asks, with which words."""

    def __init__(self, house: House, request: Request) -> None:
        self.house = house
        self.db = house.db
        self.request = request
        self.query = request.query_params
        self.caller: Caller = caller_of(request.scope)
        self.owner = self.caller.owner
        self.id: str = request.path_params.get("id", "")

    async def body(self) -> Json:
        """The JSON object that was sent; an empty body is an empty one."""
        sent = bytearray()
        async for piece in self.request.stream():
            sent += piece
            if len(sent) > BODY_LIMIT:
                raise TooLarge
        try:
            value = decode(bytes(sent), NESTING) if sent else {}
        except (NotJson, LongNumber, TooDeep):
            raise Fault("invalid", "The body must be JSON, not nested deeper than 32 levels.", field="body") from None
        if not isinstance(value, dict):
            raise Fault("invalid", "The body must be a JSON object.", field="body")
        return value


def text(body: Json, field: str, most: int, *, required: bool = False) -> str | None:
    """A text field of a body."""
    value = body.get(field)
    if value is None and not required:
        return None
    if not isinstance(value, str) or (required and not value.strip()):
        raise bad(field, "must be text and not blank" if required else "must be text")
    if len(value) > most:
        raise bad(field, f"at most {most} characters")
    return value


def error(
    status: int, code: str, message: str, details: Json | None = None, headers: dict[str, str] | None = None
) -> Response:
    """The one form of an error of `/api`."""
    return JSONResponse({"error": {"code": code, "message": message, "details": details or {}}}, status, headers)


def _of_fault(fault: Fault) -> Response:
    code = fault.reason or fault.kind.upper()
    return error(
        STATUS[fault.kind], code, fault.message, fault.details, RETRY_AFTER if fault.kind == "unavailable" else None
    )


def _of_a2a(refused: A2AError) -> Response:
    retry = RETRY_AFTER if refused.kind.http == 503 else None
    return error(refused.kind.http, refused.reason, refused.message, refused.metadata, retry)


def _of_store(failed: StoreFailed) -> Response:
    log.error("the knowledge store failed", exc_info=failed)
    return error(503, "KNOWLEDGE_UNAVAILABLE", "The knowledge store cannot be used now.", None, RETRY_AFTER)


def _of_storage(failed: StorageUnavailable) -> Response:
    log.error("the registry cannot be used: %s", failed)
    return error(503, "STORAGE_UNAVAILABLE", "The registry cannot be used now; try again.", None, RETRY_AFTER)


def door(house: House, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint with its errors in the API's form."""

    async def handle(request: Request) -> Response:
        try:
            answer = await endpoint(Call(house, request))
        except Fault as fault:
            return _of_fault(fault)
        except A2AError as refused:
            return _of_a2a(refused)
        except TooLarge:
            return error(413, "TOO_LARGE", f"The body is larger than {BODY_LIMIT} bytes.")
        except BadQuery as wrong:
            return error(400, "INVALID", f"q: {wrong}", {"field": "q"})
        except SearchTimeout:
            return error(503, "SEARCH_TIMEOUT", "The search took too long and was stopped.", None, RETRY_AFTER)
        except StoreFailed as failed:
            return _of_store(failed)
        except StorageUnavailable as failed:
            return _of_storage(failed)
        except Exception as failed:
            error_id = secrets.token_hex(6)
            log.error("error %s", error_id, exc_info=failed)
            return error(500, "INTERNAL", f"Internal error {error_id}.")
        return answer if isinstance(answer, Response) else JSONResponse(answer)

    return handle


# -- jobs


def job_json(job: Job, *, html: bool = False) -> Json:
    """JOB as it is listed."""
    shown = job.public()
    return {**shown, "excerpt_html": render(job.excerpt)} if html else shown


async def list_jobs(call: Call) -> Json:
    limit = number(call.query, "limit", 50, 1, 200)
    found = await call.db.read(
        jobs.page,
        call.owner,
        limit=limit + 1,
        session=call.query.get("session"),
        status=choice(call.query, "status", jobs.STATUSES),
        batch=call.query.get("batch"),
        dismissed=flag(call.query, "dismissed"),
        before=decode_cursor(call.query, int, str),
    )
    page = found[:limit]
    more = encode_cursor(page[-1].created_at, page[-1].id) if len(found) > limit else ""
    html = bool(flag(call.query, "html"))
    return {"jobs": [job_json(job, html=html) for job in page], "next_cursor": more}


async def spawn(call: Call) -> Response:
    call.house.require_open()
    body = await call.body()
    session = session_id(body.get("session"), "session")
    many = "jobs" in body
    asked = body["jobs"] if many else [body]
    if not isinstance(asked, list) or not 1 <= len(asked) <= MAX_BATCH:
        raise bad("jobs", f"a list of 1 to {MAX_BATCH} jobs")
    specs = [(_key(each), spec_of(call.house.registry, each)) for each in asked]
    made = await call.db.write(_spawn, call.owner, session, specs)
    if many:
        return JSONResponse({"batch_id": made[0].batch_id, "jobs": [full_json(job, "") for job in made]}, 202)
    return JSONResponse(full_json(made[0], ""), 202)


def _key(asked: Any) -> str:
    given = text(asked, "key", MAX_KEY) if isinstance(asked, dict) else None
    return f"api:{given}" if given else f"once:{secrets.token_hex(12)}"


def _spawn(tx: Tx, owner: str, session: str, specs: list[tuple[str, Spec]]) -> list[Job]:
    found = sessions.get(tx, owner, session)
    return spawning.send_out(tx, found, f"batch-{secrets.token_hex(8)}", specs, closed=True)


def full_json(job: Job, report: str | None) -> Json:
    """JOB as it is had by id."""
    return {**job.public(), "prompt": job.prompt, "report": report}


async def get_job(call: Call) -> Json:
    job, result = await call.db.read(_with_report, call.owner, call.id)
    return full_json(job, result.text if result and job.ended else None)


def _with_report(tx: Tx, owner: str, job_id: str) -> tuple[Job, Result | None]:
    job = jobs.get(tx, owner, job_id)
    return job, results.read(tx, job.task_id)


async def get_report(call: Call) -> Response:
    job, result = await call.db.read(_with_report, call.owner, call.id)
    report = result.text if result and job.ended else ""
    if not report:
        raise Fault("not_found", f"The job is {job.status} and has no report.", status=job.status)
    if flag(call.query, "html"):
        return HTMLResponse(await asyncio.to_thread(render, report), headers=HEADERS)
    name = f'attachment; filename="{job.id}.md"'
    headers = {"Content-Disposition": name} if flag(call.query, "download") else {}
    return Response(
        report, media_type="text/markdown; charset=utf-8", headers={**headers, "X-Content-Type-Options": "nosniff"}
    )


async def cancel_job(call: Call) -> Json:
    job = await call.db.write(lambda tx: terminal.cancel_job(tx, jobs.get(tx, call.owner, call.id), "user"))
    return full_json(job, None)


async def dismiss_job(call: Call) -> Json:
    return full_json(await call.db.write(jobs.dismiss, call.owner, call.id), None)


async def retry_job(call: Call) -> Response:
    call.house.require_open()
    return JSONResponse(full_json(await call.db.write(jobs.retry, call.owner, call.id), None), 202)


async def get_batch(call: Call) -> Json:
    return await call.db.read(_batch, call.owner, call.id)


def _batch(tx: Tx, owner: str, batch_id: str) -> Json:
    batch, _, joins = batches.get(tx, owner, batch_id)
    return {
        "id": batch["id"],
        "session": batch["session_id"],
        "closed": batch["closed_at"] is not None,
        "counts": batches.counts(tx, batch_id),
        "jobs": [job_json(job) for job in jobs.of_batch(tx, batch_id)],
        "joins": [{**join, "at": rfc3339(join["at"])} for join in joins],
    }


# -- sessions


def session_id(given: Any, field: str) -> str:
    """A session's id as a client may name it."""
    if not isinstance(given, str) or not is_session_id(given):
        raise bad(field, "1 to 128 characters out of A-Z a-z 0-9 . _ : -")
    if is_reserved(given):
        raise bad(field, "ids that begin with background: are reserved")
    return given


def session_json(row: Row) -> Json:
    return {
        "id": row["id"],
        "title": row["title"],
        "kind": row["kind"],
        "created_at": rfc3339(row["created_at"]),
        "updated_at": rfc3339(row["updated_at"]),
        "running": row["running"],
        "incognito": False,
    }


async def list_sessions(call: Call) -> Json:
    limit = number(call.query, "limit", 50, 1, 200)
    found = await call.db.read(sessions.page, call.owner, limit + 1, decode_cursor(call.query, int, str))
    page = found[:limit]
    more = encode_cursor(page[-1]["updated_at"], page[-1]["uid"]) if len(found) > limit else ""
    return {"sessions": [session_json(row) for row in page], "next_cursor": more}


async def make_session(call: Call) -> Response:
    body = await call.body()
    given = f"s-{secrets.token_hex(8)}" if body.get("id") is None else session_id(body["id"], "id")
    await call.db.write(sessions.open_session, call.owner, given)
    return JSONResponse(await call.db.read(_session, call.owner, given), 201)


async def get_session(call: Call) -> Json:
    return await call.db.read(_session, call.owner, call.id)


def _session(tx: Tx, owner: str, given: str) -> Json:
    return session_json(sessions.with_running(tx, sessions.get(tx, owner, given)))


async def list_messages(call: Call) -> Json:
    limit = number(call.query, "limit", 100, 1, 200)
    before = number(call.query, "before", 0, 1, 1 << 40) or None
    html = bool(flag(call.query, "html"))
    rows = await call.db.read(
        lambda tx: sessions.messages(tx, sessions.get(tx, call.owner, call.id).uid, limit + 1, before)
    )
    page = rows[-limit:]
    more = str(page[0]["id"]) if len(rows) > limit else ""
    return {"messages": [message_json(row, html=html) for row in page], "next_cursor": more}


def message_json(row: Row, *, html: bool) -> Json:
    """MESSAGE; the text of an agent's answer is its task's result."""
    said = row["text"]
    if row["artifacts"] is not None:
        said = Result(json.loads(row["artifacts"]), row["partial"]).text
    agents = row["kind"] == "agent"
    shown = {
        "id": row["id"],
        "role": row["role"],
        "kind": row["kind"],
        "text": said,
        "task_id": row["task_id"],
        "state": row["state"],
        "reason": row["reason"],
        "detail": row["detail"] if agents else None,
        "created_at": rfc3339(row["created_at"]),
        "job_ids": json.loads(row["job_ids"]),
    }
    return {**shown, "html": render(said) if agents else None} if html else shown


async def post_message(call: Call) -> Response:
    """A user's message; it makes the session where there is none. It is accepted like any other."""
    call.house.require_open()
    body = await call.body()
    said = text(body, "text", MAX_TEXT, required=True) or ""
    message_id = text(body, "message_id", 256) or secrets.token_hex(12)
    context = session_id(call.id, "session")
    content = {"messageId": message_id, "contextId": context, "role": "ROLE_USER", "parts": [{"text": said}]}
    incoming = Incoming(
        owner=call.owner,
        session_id=context,
        message_id=message_id,
        fingerprint=fingerprint(content),
        text=said,
        content=content,
    )
    accepted = await call.db.write(tasks.accept, incoming)
    return JSONResponse({"task_id": accepted.task_id}, 202)


async def stop_jobs(call: Call) -> Json:
    return {"canceled": await call.db.write(_stop_jobs, call.owner, call.id)}


def _stop_jobs(tx: Tx, owner: str, given: str) -> list[str]:
    running = jobs.of_session(tx, sessions.get(tx, owner, given).uid, running=True)
    return [terminal.cancel_job(tx, job, "user").id for job in running]


async def cancel_turn(call: Call) -> Json:
    return await call.db.write(_cancel_turn, call.owner, call.id, call.request.path_params["task_id"])


def _cancel_turn(tx: Tx, owner: str, given: str, task_id: str) -> Json:
    session = sessions.get(tx, owner, given)
    task = tasks.find(tx, owner, task_id)
    if task is None or task.session != session.uid:
        raise not_found("task")
    if not terminal.cancel_task(tx, task, "user"):
        raise Fault("conflict", f"The task is {task.state} already.", state=task.state)
    return {"task_id": task_id, "state": "canceled"}


# -- knowledge


async def search(call: Call) -> Json:
    hits = await call.house.knowledge.search(
        call.query.get("q", ""),
        call.owner,
        limit=number(call.query, "limit", 10, 1, 50),
        session=call.query.get("session"),
        source_type=choice(call.query, "source_type", SOURCE_TYPES),
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
    }


def routes(house: House) -> list[BaseRoute]:
    table: list[tuple[str, str, Endpoint]] = [
        ("GET", "/api/background", list_jobs),
        ("POST", "/api/background", spawn),
        ("GET", "/api/background/{id}", get_job),
        ("GET", "/api/background/{id}/report", get_report),
        ("POST", "/api/background/{id}/cancel", cancel_job),
        ("POST", "/api/background/{id}/dismiss", dismiss_job),
        ("POST", "/api/background/{id}/retry", retry_job),
        ("GET", "/api/batches/{id}", get_batch),
        ("GET", "/api/sessions", list_sessions),
        ("POST", "/api/sessions", make_session),
        ("GET", "/api/sessions/{id}", get_session),
        ("GET", "/api/sessions/{id}/messages", list_messages),
        ("POST", "/api/sessions/{id}/messages", post_message),
        ("POST", "/api/sessions/{id}/stop", stop_jobs),
        ("POST", "/api/sessions/{id}/tasks/{task_id}/cancel", cancel_turn),
        ("GET", "/api/knowledge/search", search),
    ]
    return [Route(path, door(house, endpoint), methods=[method]) for method, path, endpoint in table]
