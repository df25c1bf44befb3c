"""Sessions and their log over HTTP: `/api/sessions`. A message is taken like any other, whichever way it comes."""

import asyncio
import secrets
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from background import acceptance, expenses, job_rows, messages, questions, results, sessions, steering, tasks, terminal
from background.acceptance import Incoming
from background.database import Tx
from background.errors import Fault, not_found
from background.large import is_large
from background.messages import Message
from background.questions import Asked
from background.results import Result
from background.sessions import Listed
from background.states import INTERRUPTED
from background.steering import Course
from background.text import clip
from background.times import rfc3339
from background.usage import Usage
from web import admission, api_fields, artifacts
from web.a2a_call import off_the_loop
from web.a2a_fields import Limits
from web.a2a_message import spelled
from web.console import render
from web.door import Call, Endpoint, Json, door, incognito, no_claims, session_id, text
from web.house import House
from web.paging import bad, decode_cursor, encode_cursor, flag, number

MAX_TEXT = 1_000_000  # characters of a message
LOG_BYTES = 4 * 1024 * 1024  # of a page of the log, as stored


def session_json(listed: Listed) -> Json:
    return {
        "id": listed.session.id,
        "title": listed.title,
        "kind": listed.session.kind,
        "created_at": rfc3339(listed.session.created_at),
        "updated_at": rfc3339(listed.session.updated_at),
        "running": listed.running,
        "parked": listed.parked,
        "incognito": listed.session.incognito,
    }


async def list_sessions(call: Call) -> Json:
    limit = number(call.query, "limit", 50, 1, 200)
    found = await call.db.read(_page, call.owner, limit + 1, decode_cursor(call.query, int, str))
    page = found[:limit]
    more = encode_cursor(page[-1].session.updated_at, page[-1].session.uid) if len(found) > limit else ""
    return {"sessions": [session_json(listed) for listed in page], "next_cursor": more}


async def make_session(call: Call) -> Response:
    body = await call.body()
    quiet = incognito(body)
    given = f"s-{secrets.token_hex(8)}" if body.get("id") is None else session_id(body["id"], "id")
    await call.db.write(partial(sessions.open_session, incognito=quiet), call.owner, given)
    return JSONResponse(await call.db.read(_session, call.owner, given), 201)


async def get_session(call: Call) -> Json:
    return await call.db.read(_session, call.owner_in(call.id), call.id)


def _session(tx: Tx, owner: str, given: str) -> Json:
    found = sessions.get(tx, owner, given)
    return session_json(_titled(tx, sessions.with_running(tx, found))) | {"usage": _usage(tx, found.uid)}


def _usage(tx: Tx, uid: str) -> Json:
    """What the session and its jobs have cost, in all and by cause; and what its jobs have, since its user last spoke."""
    causes = expenses.of_session(tx, uid)
    by_cause = {cause: vars(usage) for cause, usage in causes.items()}
    return {**vars(sum(causes.values(), Usage())), "causes": by_cause, "tree_tokens": sessions.tree_tokens(tx, uid)}


def _page(tx: Tx, owner: str, limit: int, before: tuple[int, str] | None) -> list[Listed]:
    return [_titled(tx, listed) for listed in sessions.page(tx, owner, limit, before)]


def _titled(tx: Tx, listed: Listed) -> Listed:
    """Where its user has not spoken yet a session is called as its first job is, unless that is to be told to nobody."""
    if listed.title or listed.session.incognito:
        return listed
    return replace(listed, title=clip(job_rows.first_of(tx, listed.session.uid), sessions.TITLE_CHARS))


async def list_messages(call: Call) -> Json:
    limit = number(call.query, "limit", 100, 1, 200)
    # `before` is the number of a message that somebody has; a page's `next_cursor` is the same thing.
    place = "cursor" if call.query.get("cursor") else "before"
    before = number(call.query, place, 0, 1, 1 << 40) or None
    html = bool(flag(call.query, "html"))
    page, earlier = await call.db.read(_log, call.owner_in(call.id), call.id, limit, before)
    more = str(page[0].message.id) if earlier else ""
    # Rendering takes its time, and nobody else should wait for it.
    return {"messages": await asyncio.to_thread(_all_json, page, call.id, html), "next_cursor": more}


class Logged(NamedTuple):
    """An entry of a log with the end of its task: `result` of an agent's answer alone, `question` of one that is open.

    `last`: it is the entry with which its task ended, which has the answer, or why there is none. `course` is of what was
    said to the agent.
    """

    message: Message
    end: tasks.End | None
    last: bool
    result: Result | None
    question: Asked | None
    course: Course = Course()


def _log(tx: Tx, owner: str, given: str, limit: int, before: int | None) -> tuple[list[Logged], bool]:
    found, earlier = messages.page(tx, sessions.get(tx, owner, given).uid, limit, before, LOG_BYTES)
    ends = tasks.ends(tx, [message.task_id for message in found if message.task_id])
    courses = steering.courses(tx, [message.task_id for message in found if message.task_id and message.role == "user"])
    last = {message.id for message in found if _is_last(message, ends.get(message.task_id or ""))}
    answers = results.read_many(tx, [message.task_id for message in found if message.id in last and message.task_id])
    parked = {task_id: questions.current(tx, task_id) for task_id, end in ends.items() if end.state in INTERRUPTED}
    logged = [
        Logged(
            message,
            ends.get(message.task_id or ""),
            message.id in last,
            answers.get(message.task_id or "") if message.id in last else None,
            _open_question(message, parked.get(message.task_id or "")),
            courses.get(message.task_id or "", Course()) if message.role == "user" else Course(),
        )
        for message in found
    ]
    return logged, earlier


def _is_last(message: Message, end: tasks.End | None) -> bool:
    """Whether it was written with its task's end. Others of the agent's are questions, also where their text is not kept."""
    return message.kind == "agent" and not message.text and end is not None and message.created_at == end.at


def _open_question(message: Message, asked: Asked | None) -> Asked | None:
    """The question that this entry asked, if it is still open: both were written in one commit."""
    mine = asked is not None and message.kind == "agent" and message.created_at == asked.asked_at
    return asked if mine else None


def _all_json(page: list[Logged], session: str, html: bool) -> list[Json]:
    return [message_json(logged, session, html=html) for logged in page]


def message_json(logged: Logged, session: str, *, html: bool) -> Json:
    """MESSAGE; the text of an agent's answer is its task's result, and `artifacts` what is more than text in it."""
    message, end = logged.message, logged.end
    detail = end.detail if logged.last and end else None
    address = f"/api/sessions/{session}/tasks/{message.task_id}/artifacts"
    said = logged.result.text if logged.result else message.text
    agents = message.kind == "agent"
    shown = {
        "id": message.id,
        "role": message.role,
        "kind": message.kind,
        "text": said,
        "task_id": message.task_id,
        "state": end and end.state,
        "reason": end and end.reason,
        "detail": detail,
        "created_at": rfc3339(message.created_at),
        "job_ids": list(message.job_ids),
        "question": logged.question and questions.shown(logged.question),
        "steers": logged.course.steers,
        "folded_into": logged.course.folded_into,
        "withdrawn": logged.course.withdrawn,
        "artifacts": artifacts.shown(logged.result, address, html=html) if logged.result else [],
    }
    return {**shown, "html": render(said) if agents else None} if html else shown


async def post_message(call: Call) -> Response:
    """A user's message; it makes the session where there is none. It is accepted like any other."""
    call.house.require_open()
    body = await call.body()
    no_claims(body)
    data = body.get("data")
    said = text(body, "text", MAX_TEXT, required=data is None) or ""
    message_id = text(body, "message_id", 256) or secrets.token_hex(12)
    task_id = text(body, "task_id", 256) or None
    skill = text(body, "skill", 64) or None
    if skill not in (None, *call.house.settings.profiles):
        raise bad("skill", f"one of {', '.join(call.house.settings.profiles)}")
    question = text(body, "question", 256) or None
    steer = body.get("steer", False)
    if not isinstance(steer, bool):
        raise bad("steer", "true or false")
    context = session_id(call.id, "session")
    owner = call.owner_in(context, changes=True)
    if task_id:
        context = await call.db.read(_context_of, owner, context, task_id)
        owner = call.owner_in(context, changes=True)  # a share of a session opens none of its jobs' own
    parts = [*([{"text": said}] if said.strip() else []), *([] if data is None else [{"data": data}])]
    content: Json = {"messageId": message_id, "contextId": context, "role": "ROLE_USER", "parts": parts}
    content |= {"taskId": task_id} if task_id else {}
    metadata = {name: value for name, value in {"skill": skill, "question": question, "steer": steer}.items() if value}
    content |= {"metadata": metadata} if metadata else {}
    mark, words = await off_the_loop(is_large(data), spelled, content)
    incoming = Incoming(
        owner=owner,
        session_id=context,
        message_id=message_id,
        sender=call.caller.sender,
        within=call.caller.share and call.caller.share.uid,
        fingerprint=mark,
        text=words,
        content=content,
        profile=skill or Limits(skills=call.house.settings.profiles).default_skill,
        task_id=task_id,
        data=data,
        question=question,
        steer=steer,
    )
    with api_fields.as_called():
        message = await admission.admit(call.db, call.house.offers, incoming)
        async with admission.masked_beforehand(call.db, message):
            accepted = await call.db.write(acceptance.accept, message)
    return JSONResponse({"task_id": accepted.task_id}, 202)


def _context_of(tx: Tx, owner: str, given: str, task_id: str) -> str:
    """Where a task of this session is at home: here, or for the task of a job that was sent out here, in its own session."""
    session, task = sessions.get(tx, owner, given), tasks.find(tx, owner, task_id)
    if task is None:
        raise not_found("task")
    job = job_rows.find(tx, owner, task.cause or "") if task.origin == "background" else None
    if session.uid not in (task.session, job and job.session):
        raise not_found("task")
    return task.session_id


async def stop_jobs(call: Call) -> Json:
    return {"canceled": await call.db.write(_stop_jobs, call.owner_of_all, call.id)}


def _stop_jobs(tx: Tx, owner: str, given: str) -> list[str]:
    running = job_rows.of_session(tx, sessions.get(tx, owner, given).uid, running=True)
    return [terminal.cancel_job(tx, job, "user").id for job in running]


async def get_part(call: Call) -> Response:
    """The content of a part of a turn's answer: a file, or structured data as one."""
    artifact, part = call.request.path_params["artifact"], call.request.path_params["part"]
    result = await call.db.read(_result, call.owner_in(call.id), call.id, call.request.path_params["task_id"])
    return artifacts.content(result, artifact, part)


def _result(tx: Tx, owner: str, given: str, task_id: str) -> Result | None:
    return results.read(tx, _turn(tx, owner, given, task_id).id)


def _turn(tx: Tx, owner: str, given: str, task_id: str) -> tasks.Task:
    """A turn of this session. Raises `not_found`."""
    session, task = sessions.get(tx, owner, given), tasks.find(tx, owner, task_id)
    if task is None or task.session != session.uid:
        raise not_found("task")
    return task


async def cancel_turn(call: Call) -> Json:
    task_id = call.request.path_params["task_id"]
    return await call.db.write(_cancel_turn, call.owner_of_all, call.id, task_id)


def _cancel_turn(tx: Tx, owner: str, given: str, task_id: str) -> Json:
    task = _turn(tx, owner, given, task_id)
    note = terminal.lasting(tx, task)
    if not terminal.cancel_task(tx, task, "user"):
        raise Fault("conflict", f"The task is {task.state} already.", state=task.state)
    return {"task_id": task_id, "state": "canceled", **({"note": note} if note else {})}


def routes(house: House) -> list[BaseRoute]:
    table: list[tuple[str, str, Endpoint]] = [
        ("GET", "/api/sessions", list_sessions),
        ("POST", "/api/sessions", make_session),
        ("GET", "/api/sessions/{id}", get_session),
        ("GET", "/api/sessions/{id}/messages", list_messages),
        ("POST", "/api/sessions/{id}/messages", post_message),
        ("POST", "/api/sessions/{id}/stop", stop_jobs),
        ("GET", "/api/sessions/{id}/tasks/{task_id}/artifacts/{artifact}/{part}", get_part),
        ("POST", "/api/sessions/{id}/tasks/{task_id}/cancel", cancel_turn),
    ]
    return [Route(path, door(house, endpoint), methods=[method]) for method, path, endpoint in table]
