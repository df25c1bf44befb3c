"""Jobs and batches over HTTP: `/api/background`, `/api/batches`. Requests become transactions of the rooms below.

Everything is read and changed as the caller; what goes wrong is told by `web/door.py`.
"""

import asyncio
import secrets
from dataclasses import replace
from typing import Any

from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from agent import spawning
from agent.profiles import CHAT
from agent.spawning import MAX_BATCH, MAX_PROMPT, spec_of
from background import batches, follow_ups, job_rows, jobs, questions, results, sessions, terminal
from background.database import Tx
from background.errors import Fault
from background.job_rows import Job
from background.jobs import Spec
from background.results import Result
from background.text import clean, clip
from background.times import rfc3339
from web import acting, api_sessions
from web.caller import Caller
from web.console import HEADERS, render
from web.door import Call, Endpoint, Json, door, incognito, session_id, text
from web.house import House
from web.paging import bad, choice, decode_cursor, encode_cursor, flag, number

MAX_KEY = 200
MAX_FIELD_NAME = 64  # of one that is refused
JOB_FIELDS = ("prompt", "description", "subagent_type", "key")
OF_ALL_JOBS = ("session", "incognito")


def job_json(job: Job, *, named: bool = True) -> Json:
    """JOB, with its question whole: who approves must see of what. Its report is another matter: that is had by id alone.

    Unless it or its session was `named`, an incognito one comes without words.
    """
    if job.incognito and not named:
        return {**job.public(), "prompt": ""}
    return {**job.public(named=True), "prompt": job.prompt, "question": job.question and questions.shown(job.question)}


async def list_jobs(call: Call) -> Json:
    limit = number(call.query, "limit", 50, 1, 200)
    session = call.query.get("session")
    found = await call.db.read(
        job_rows.page,
        call.owner_in(session),
        limit=limit + 1,
        session=session,
        status=choice(call.query, "status", job_rows.STATUSES),
        batch=call.query.get("batch"),
        dismissed=flag(call.query, "dismissed"),
        before=decode_cursor(call.query, int, str),
    )
    page = found[:limit]
    more = encode_cursor(page[-1].created_at, page[-1].id) if len(found) > limit else ""
    named = session is not None and call.caller.share is None
    if flag(call.query, "html"):  # rendering takes its time, and nobody else should wait for it
        return {"jobs": await asyncio.to_thread(_rendered, page, named), "next_cursor": more}
    return {"jobs": [job_json(job, named=named) for job in page], "next_cursor": more}


def _rendered(page: list[Job], named: bool) -> list[Json]:
    return [{**job_json(job, named=named), "excerpt_html": render(job.excerpt)} for job in page]


async def spawn(call: Call) -> Response:
    call.house.require_open()
    body = await call.body()
    session = session_id(body.get("session"), "session")
    many = "jobs" in body
    asked = body["jobs"] if many else [body]
    if not isinstance(asked, list) or not 1 <= len(asked) <= MAX_BATCH:
        raise bad("jobs", f"a list of 1 to {MAX_BATCH} jobs")
    quiet = bool(incognito(body))
    _check_fields(body, asked, many)
    found = [_spec(call.house, each, f"jobs[{place}]" if many else "") for place, each in enumerate(asked)]
    specs = [(key, replace(spec, incognito=quiet)) for key, spec in found]
    made = await call.db.write(_spawn, call.owner, session, specs, call.house.offers[CHAT].level)
    if many:
        return JSONResponse({"batch_id": made[0].batch_id, "jobs": [job_json(job) for job in made]}, 202)
    return JSONResponse(job_json(made[0]), 202)


def _check_fields(body: Json, asked: list[Any], many: bool) -> None:
    """A mistyped field is named, and not left out of the work."""
    if many and (beside := next((field for field in JOB_FIELDS if field in body), None)):
        raise Fault("invalid", f"{beside} stands within each of jobs, and not beside them.", field=beside)
    known = (*OF_ALL_JOBS, *(("jobs",) if many else JOB_FIELDS))
    inside = [(f"jobs[{place}].", each, JOB_FIELDS) for place, each in enumerate(asked)] if many else []
    for at, given, fields in [("", body, known), *inside]:
        _check_known(at, given, fields)


def _check_known(at: str, given: Any, fields: tuple[str, ...]) -> None:
    unknown = next((field for field in given if field not in fields), None) if isinstance(given, dict) else None
    if unknown is not None:
        field = f"{at}{clip(clean(unknown), MAX_FIELD_NAME)}"
        raise Fault("invalid", f"{field}: there is no such field; there are {', '.join(fields)}.", field=field)


def _spec(house: House, asked: Any, at: str) -> tuple[str, Spec]:
    """A job's key and spec; what is wrong in one of a list is named by its place in it."""
    try:
        key = text(asked, "key", MAX_KEY) if isinstance(asked, dict) else None
        spec = spec_of(house.registry, asked)
    except Fault as fault:
        if at:
            field = fault.details.get("field")
            fault.details["field"] = at if field in (None, "jobs") else f"{at}.{field}"
        raise
    return f"api:{key}" if key else f"once:{secrets.token_hex(12)}", spec


def _spawn(tx: Tx, owner: str, session: str, specs: list[tuple[str, Spec]], level: str) -> list[Job]:
    found = sessions.get(tx, owner, session)
    return spawning.send_out(tx, found, f"batch-{secrets.token_hex(8)}", specs, closed=True, level=level)


async def get_job(call: Call) -> Json:
    job, result = await call.db.read(_with_report, call.caller, call.id)
    return {**job_json(job), "report": result.text if result and job.ended and not job.erased else None}


def _with_report(tx: Tx, caller: Caller, job_id: str) -> tuple[Job, Result | None]:
    job = job_rows.get(tx, acting.on_job(tx, caller, job_id), job_id)
    return job, results.read(tx, job.task_id)


async def get_report(call: Call) -> Response:
    job, result = await call.db.read(_with_report, call.caller, call.id)
    report = result.text if result and job.ended else ""
    if job.erased:
        raise Fault("not_found", "The report of this job was erased.", reason="REPORT_ERASED")
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
    job = await call.db.write(lambda tx: terminal.cancel_job(tx, job_rows.get(tx, call.owner, call.id), "user"))
    return job_json(job)


async def dismiss_job(call: Call) -> Json:
    return job_json(await call.db.write(jobs.dismiss, call.owner, call.id))


async def retry_job(call: Call) -> Response:
    call.house.require_open()
    return JSONResponse(job_json(await call.db.write(jobs.retry, call.owner, call.id)), 202)


async def ask_job(call: Call) -> Response:
    call.house.require_open()
    await call.db.read(job_rows.get, call.owner, call.id)
    body = await call.body()
    _check_known("", body, ("prompt",))
    question = clean(text(body, "prompt", MAX_PROMPT, required=True) or "")
    level = call.house.offers[CHAT].level
    return JSONResponse(job_json(await call.db.write(follow_ups.ask, call.owner, call.id, question, level)), 202)


async def get_batch(call: Call) -> Json:
    return await call.db.read(_batch, call.caller, call.id)


def _batch(tx: Tx, caller: Caller, batch_id: str) -> Json:
    batch, _, joins = batches.get(tx, acting.on_batch(tx, caller, batch_id), batch_id)
    return {
        "id": batch["id"],
        "session": batch["session_id"],
        "closed": batch["closed_at"] is not None,
        "counts": batches.counts(tx, batch_id),
        "jobs": [job_json(job, named=False) for job in job_rows.of_batch(tx, batch_id)],
        "joins": [{**join, "at": rfc3339(join["at"])} for join in joins],
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
        ("POST", "/api/background/{id}/ask", ask_job),
        ("GET", "/api/batches/{id}", get_batch),
    ]
    jobs_and_batches = [Route(path, door(house, endpoint), methods=[method]) for method, path, endpoint in table]
    return [*jobs_and_batches, *api_sessions.routes(house)]
