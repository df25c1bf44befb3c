"""The life cycle of sessions, turns and reports over HTTP: erase, copy, export, import.

What is erased is hidden when the answer goes out, which is why it is a 202: that its bytes leave the files as well is
the `erase` run's, and takes as long as somebody still reads them.
"""

import secrets

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from agent.lifecycle import forgetting, forgetting_session
from background import job_rows, retention, sessions, snapshots, tasks, terminal
from background.database import Tx
from background.errors import Fault, not_found
from background.snapshot_shape import recognized
from web.api import job_json
from web.api_sessions import session_json
from web.door import Call, Endpoint, Json, door, session_id
from web.house import House

MOST_BYTES = 64 * 1024 * 1024  # of a snapshot


async def erase_session(call: Call) -> Response:
    await call.db.write(_erase_session, call.owner_of_all, call.id)
    return JSONResponse({"erased": call.id}, 202)


def _erase_session(tx: Tx, owner: str, given: str) -> None:
    session = sessions.get(tx, owner, given)
    if session.kind == "background":
        raise Fault("conflict", "A job's own session goes with the session that sent the job out.")
    retention.erase_session(tx, session, forgetting_session(session.id))


async def erase_task(call: Call) -> Response:
    task_id = call.request.path_params["task_id"]
    await call.db.write(_erase_task, call.owner_of_all, call.id, task_id)
    return JSONResponse({"erased": task_id}, 202)


def _erase_task(tx: Tx, owner: str, given: str, task_id: str) -> None:
    session = sessions.get(tx, owner, given)
    task = tasks.find(tx, owner, task_id)
    if task is None or task.session != session.uid:
        raise not_found("task")
    retention.erase_task(tx, task, forgetting_session(session.id))


async def erase_report(call: Call) -> Response:
    return JSONResponse(await call.db.write(_erase_report, call.owner, call.id), 202)


def _erase_report(tx: Tx, owner: str, job_id: str) -> Json:
    retention.erase_report(tx, owner, job_id, forgetting(job_id))
    return {**job_json(job_rows.get(tx, owner, job_id)), "report": None}


async def export_session(call: Call) -> Response:
    owner = call.owner_of_all
    found = await call.db.read(lambda tx: snapshots.export(tx, sessions.get(tx, owner, call.id)))
    name = f'attachment; filename="{call.id.replace(":", "_")}.json"'
    return JSONResponse(found, headers={"Content-Disposition": name})


async def import_session(call: Call) -> Response:
    """A snapshot, as it was exported; `id` in the query gives the session another name."""
    call.house.require_open()
    owner, snapshot = call.owner, await call.body(MOST_BYTES)
    recognized(snapshot)  # before its id is missed: what is no snapshot at all has none
    to = call.query.get("id")
    given = snapshot.get("session")
    named = to if to is not None else given.get("id") if isinstance(given, dict) else None
    target = session_id(named, "id" if to is not None else "session.id")
    return JSONResponse(await call.db.write(_load, owner, snapshot, target, call.house), 201)


def _load(tx: Tx, owner: str, snapshot: Json, target: str, house: House) -> Json:
    made = snapshots.load(tx, owner, snapshot, target)
    for task in tasks.ended_of_session(tx, made.uid):  # where it comes from, more may have been kept than here
        offer = house.offers.get(task["profile"])
        terminal.tighten(tx, task["id"], offer.level if offer else house.settings.answer_level)
    return session_json(sessions.with_running(tx, made))


async def copy_session(call: Call) -> Response:
    call.house.require_open()
    body = await call.body()
    target = f"s-{secrets.token_hex(8)}" if body.get("id") is None else session_id(body["id"], "id")
    return JSONResponse(await call.db.write(_copy, call.owner_of_all, call.id, target), 201)


def _copy(tx: Tx, owner: str, given: str, target: str) -> Json:
    source = sessions.get(tx, owner, given)
    copied = session_json(sessions.with_running(tx, snapshots.copy(tx, source, target)))
    return {**copied, "left_out": snapshots.left_out(tx, source)}


def routes(house: House) -> list[BaseRoute]:
    table: list[tuple[str, str, Endpoint]] = [
        ("POST", "/api/sessions/import", import_session),
        ("DELETE", "/api/sessions/{id}", erase_session),
        ("DELETE", "/api/sessions/{id}/tasks/{task_id}", erase_task),
        ("GET", "/api/sessions/{id}/export", export_session),
        ("POST", "/api/sessions/{id}/copy", copy_session),
        ("DELETE", "/api/background/{id}/report", erase_report),
    ]
    return [Route(path, door(house, endpoint), methods=[method]) for method, path, endpoint in table]
