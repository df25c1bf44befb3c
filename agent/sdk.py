"""For plugins and programs in a process that runs Outrider: send jobs out, look at them, stop them, search.

A call may be awaited on any event loop; a thread without one says `asyncio.run(spawn_background(…))`. In a turn it acts
for the turn's owner, outside for the operator; a job always has the owner of the session that it is for.
"""

import inspect
import re
import secrets
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.on_behalf import incognito_now, job_now, owner_now, plugin_now, turn_now
from agent.running import Running
from agent.spawning import send_out, spec_of
from agent.subagents import Registry
from agent.works import COROUTINE, Kind, Loose, spec_of_work
from background import job_rows, results, sessions, tasks, terminal
from background.database import Database, Tx
from background.errors import Fault
from background.job_rows import Job
from background.jobs import Spec
from background.sessions import Session
from knowledge.backend import Backend, Hit

SESSION_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


_running: list[Running] = []


def enter(
    db: Database,
    knowledge: Backend,
    registry: Registry,
    level: str = "full",
    works: Mapping[str, Kind] | None = None,
    loose: Loose | None = None,
) -> Running:
    """An Outrider has started in this process, on the event loop of the caller. For `web/app.py`."""
    running = Running(db, knowledge, registry, level, works, loose)
    _running.append(running)
    return running


def leave(running: Running) -> None:
    """It has stopped. For `web/app.py`."""
    _running.remove(running)
    running.leave()


def _here() -> Running:
    if not _running:
        raise Fault("unavailable", "No Outrider runs in this process; from elsewhere use POST /api/background.")
    return _running[-1]


@dataclass(frozen=True)
class Status:
    """A job's row, with the report once it has ended."""

    job: Job
    report: str | None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.job, name)


async def open_session(session: str | None = None, *, incognito: bool | None = None) -> str:
    """Makes the owner's chat of this id, unless it is there; without an id a new one. Returns its id.

    An `incognito` one is remembered nowhere. Raises a fault for an id that is not 1 to 128 of the characters A-Z a-z 0-9
    . _ : - or that Outrider gives itself, and for a chat that is there and is not as it is asked for.
    """
    given = f"s-{secrets.token_hex(8)}" if session is None else session
    if not SESSION_ID.fullmatch(given) or given.casefold().startswith(sessions.BACKGROUND):
        raise Fault("invalid", "A session's id is 1 to 128 of the characters A-Z a-z 0-9 . _ : -", field="session")
    return (await _here().write(_open, owner_now(), given, incognito, incognito_now())).id


def _open(tx: Tx, owner: str, given: str, incognito: bool | None, otherwise: bool) -> Session:
    if incognito is None and sessions.find(tx, owner, given) is None:
        incognito = otherwise
    return sessions.open_session(tx, owner, given, incognito=incognito)


async def spawn_background(
    *,
    session: str,
    description: str = "",
    prompt: str,
    subagent_type: str = "general",
    key: str | None = None,
    incognito: bool = False,
) -> str:
    """Send a job out for a session that exists; its id. It comes back there as a briefing, and of a turn together with what
    else that has sent out.

    An `incognito` one, as all of an incognito session are, wakes nobody and is told with the session's next turn. The same
    `key` again is the same job. Raises `background.errors.Fault` with a sentence and a kind or a reason
    (`UNKNOWN_SUBAGENT`, `QUEUE_LIMIT`, `DEPTH_LIMIT`, `RESULT_NOT_STORABLE`), and then nothing is stored.
    """
    asked = {"description": description, "prompt": prompt, "subagent_type": subagent_type, "key": key}
    here = _here()
    spec = replace(spec_of(here.registry, asked), plugin=plugin_now(), incognito=incognito or incognito_now())
    return (
        await here.write(_spawn_one, owner_now(), session, (_key(asked), spec), here.level, job_now(), turn_now())
    ).id


async def spawn_batch(*, session: str, jobs: Sequence[dict[str, Any]], incognito: bool = False) -> list[str]:
    """Send several out as one batch of their own, taken whole or refused whole; their ids, in order. Raises like
    `spawn_background`.
    """
    here = _here()
    if not jobs:
        raise Fault("invalid", "A batch needs at least one job.", field="jobs")
    by = {"plugin": plugin_now(), "incognito": incognito or incognito_now()}
    specs = [(_key(asked), replace(spec_of(here.registry, asked), **by)) for asked in jobs]
    return [job.id for job in await here.write(_spawn, owner_now(), session, specs, here.level, job_now())]


async def spawn_work(
    kind: str | Coroutine[Any, Any, Any],
    args: Mapping[str, Any] | None = None,
    *,
    session: str,
    description: str = "",
    key: str | None = None,
    incognito: bool = False,
) -> str:
    """Send out work without a model, of a kind that a plugin has added; its id. What it returns is told whole, and of a turn
    together with what else that has sent out.

    The same `key` again is the same job. A coroutine in place of a kind takes no `args`; it runs on Outrider's event loop,
    once, and ends with this process. Raises like `spawn_background`, and for arguments that JSON cannot hold.
    """
    here = _here()
    loose = inspect.iscoroutine(kind)
    given = here.loose.take(kind) if loose else dict(args or {})
    try:
        spec = spec_of_work(here.works, COROUTINE if loose else kind, given, description)
        spec = replace(spec, plugin=plugin_now(), incognito=incognito or incognito_now())
        keyed = (_key({"key": key}), spec)
        return (await here.write(_spawn_one, owner_now(), session, keyed, here.level, job_now(), turn_now())).id
    except BaseException:
        if loose:
            here.loose.drop(given)
        raise


def _spawn_one(
    tx: Tx, owner: str, session: str, keyed: tuple[str, Spec], level: str, sender: str | None, turn: str | None
) -> Job:
    """As a member of the turn's batch, where it is one of this session at work; else as a batch of its own."""
    found = sessions.get(tx, owner, session)
    by = job_rows.find(tx, owner, sender) if sender else None
    task = tasks.find(tx, owner, turn) if turn else None
    joins = task is not None and task.state == "working" and (found.uid == task.session or by is not None)
    batch_id = task.id if task and joins else f"batch-{secrets.token_hex(8)}"
    return send_out(tx, found, batch_id, [keyed], closed=not joins, level=level, sender=by)[0]


def _key(asked: dict[str, Any]) -> str:
    given = asked.get("key") if isinstance(asked, dict) else None
    return f"api:{given}" if given else f"once:{secrets.token_hex(12)}"


def _spawn(
    tx: Tx, owner: str, session: str, specs: list[tuple[str, Spec]], level: str, sender: str | None
) -> list[Job]:
    found = sessions.get(tx, owner, session)
    by = job_rows.find(tx, owner, sender) if sender else None
    return send_out(tx, found, f"batch-{secrets.token_hex(8)}", specs, closed=True, level=level, sender=by)


async def background_status(job_id: str) -> Status | None:
    """The job as it is now, or None for one that does not exist."""
    return await _here().read(_status, owner_now(), job_id)


def _status(tx: Tx, owner: str, job_id: str) -> Status | None:
    job = job_rows.find(tx, owner, job_id)
    if job is None:
        return None
    result = results.read(tx, job.task_id) if job.ended else None
    return Status(job, result.text if result else None)


async def cancel_background(job_id: str) -> Status:
    """Cancel a job. Raises a fault: `not_found`, or `conflict` for one that has ended."""
    here, owner = _here(), owner_now()
    return await here.write(_cancel, owner, job_id)


def _cancel(tx: Tx, owner: str, job_id: str) -> Status:
    job = terminal.cancel_job(tx, job_rows.get(tx, owner, job_id), "plugin")
    return _status(tx, owner, job_id) or Status(job, None)


async def search_knowledge(query: str, *, limit: int = 5) -> list[Hit]:
    """Search the knowledge store. Raises `BadQuery`, `SearchTimeout`, `StoreFailed`."""
    return await _here().search(query, owner_now(), limit)
