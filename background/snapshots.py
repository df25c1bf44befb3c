"""Snapshots: a session as JSON that can be carried elsewhere, and made into a session again. Owns no table.

What was said and answered stays sealed in it, bound to the snapshot's session and to its place; it can be opened where
one of the keys is. It holds ended turns alone: no key, token, receipt or webhook, nothing that waits or runs, and no job.
"""

import base64
import binascii
import uuid
from typing import Any

from background import journal, results, sessions, tasks
from background.database import Row, Tx
from background.errors import Fault, Unsealable
from background.sessions import Session
from background.states import TASK, ended

FORMAT = "outrider.session"
VERSION = 1
SEALED = "sealed:"
MOST_TASKS = 10_000
Snapshot = dict[str, Any]


def export(tx: Tx, session: Session) -> Snapshot:
    """The session as it stands. Every text in it is a cell, sealed for this place in this snapshot."""
    turns = tasks.ended_of_session(tx, session.uid)
    ids = [row["id"] for row in turns]
    kept = results.read_many(tx, ids)
    seal = _Seal(tx, session.id)
    return {
        "format": FORMAT,
        "version": VERSION,
        "session": {"id": session.id, "created_at": session.created_at, "updated_at": session.updated_at},
        "tasks": [_task(tx, row, seal) for row in turns],
        "results": {task_id: _result(result, seal, task_id) for task_id, result in kept.items()},
        "messages": [_message(entry, seal) for entry in sessions.whole_log(tx, session.uid) if _belongs(entry, ids)],
    }


class _Seal:
    """Seals texts for their places in one snapshot, and opens them again."""

    def __init__(self, tx: Tx, session_id: str) -> None:
        self._tx, self._session = tx, session_id

    def close(self, place: str, text: str | None) -> str | None:
        if text is None:
            return None
        cell = self._tx.seal(f"snapshot.{place}", self._session, text)
        return SEALED + base64.b64encode(cell).decode()

    def open(self, place: str, cell: Any) -> str | None:
        """The text of a cell, or one that was written in plain. Raises an `invalid` fault for anything else."""
        if cell is None:
            return None
        if not isinstance(cell, str):
            raise _bad(place, "must be text")
        if not cell.startswith(SEALED):
            return cell
        try:
            sealed = base64.b64decode(cell.removeprefix(SEALED), validate=True)
            return self._tx.unseal(f"snapshot.{place}", self._session, sealed)
        except (binascii.Error, ValueError, Unsealable):
            raise _bad(place, "cannot be opened: altered, moved, or sealed with a key that is not here") from None


def _bad(place: str, why: str) -> Fault:
    return Fault("invalid", f"{place}: {why}.", field=place)


def _task(tx: Tx, row: Row, seal: _Seal) -> Snapshot:
    plain = {name: row[name] for name in tasks.CARRIED}
    detail, transcript = tasks.texts_of(tx, row["id"])
    at = f"tasks.{row['id']}"
    return plain | {
        "detail": seal.close(f"{at}.detail", detail),
        "transcript": seal.close(f"{at}.transcript", transcript),
    }


def _result(result: results.Result, seal: _Seal, task_id: str) -> Snapshot:
    at = f"results.{task_id}"
    return {
        "artifacts": seal.close(f"{at}.artifacts", results.encode(result.artifacts)),
        "partial": seal.close(f"{at}.partial", result.partial),
    }


def _belongs(entry: sessions.Whole, task_ids: list[str]) -> bool:
    return entry.task_id is None or entry.task_id in task_ids


def _message(entry: sessions.Whole, seal: _Seal) -> Snapshot:
    at = f"messages.{entry.uid}"
    return {
        "uid": entry.uid,
        "task": entry.task_id,
        "kind": entry.kind,
        "text": seal.close(f"{at}.text", entry.text),
        "content": seal.close(f"{at}.content", entry.content),
        "job_ids": list(entry.job_ids),
        "created_at": entry.created_at,
    }


# -- made into a session again


def copy(tx: Tx, session: Session, to: str) -> Session:
    """The session once more under another id, its turns with new ids. Raises a `conflict` fault where there is one."""
    if sessions.find(tx, session.owner, to) is not None:
        raise Fault("conflict", "There is a session of this id already.", session=to)
    return load(tx, session.owner, export(tx, session), to, fresh_ids=True)


def load(tx: Tx, owner: str, snapshot: Any, to: str | None = None, *, fresh_ids: bool = False) -> Session:
    """Make a snapshot into the owner's session `to`, by default of the snapshot's own id. All of it or nothing.

    What is there stays: a task of the same id and owner keeps its result, and one that has none is given the
    snapshot's. A task whose id is another's gets a new one. A result without a task is passed over, and a task without
    a result has none. Raises `invalid` faults that name the place.
    """
    given = _checked(snapshot)
    seal = _Seal(tx, given["session"]["id"])
    session = sessions.open_session(tx, owner, to or given["session"]["id"])
    sessions.seen_at(tx, session.uid, given["session"].get("updated_at"))
    names: dict[str, str] = {}
    for task in given["tasks"]:
        names[task["id"]] = _load_task(tx, owner, session, task, seal, fresh=fresh_ids)
    for task_id, result in given["results"].items():
        if task_id in names:
            _load_result(tx, names[task_id], task_id, result, seal)
    for message in given["messages"]:
        _load_message(tx, session, message, names, seal)
    return session


def _checked(snapshot: Any) -> Snapshot:
    if not isinstance(snapshot, dict) or snapshot.get("format") != FORMAT:
        raise _bad("format", f"must be {FORMAT}")
    if snapshot.get("version") != VERSION:
        raise _bad("version", f"must be {VERSION}")
    session = snapshot.get("session")
    if not isinstance(session, dict) or not isinstance(session.get("id"), str):
        raise _bad("session.id", "must be text")
    lists = {name: snapshot.get(name, []) for name in ("tasks", "messages")}
    found = snapshot.get("results", {})
    for name, value in lists.items():
        if not isinstance(value, list) or len(value) > MOST_TASKS or not all(isinstance(one, dict) for one in value):
            raise _bad(name, f"must be a list of at most {MOST_TASKS} objects")
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise _bad("results", "must be an object of objects")
    return {"session": session, "results": found, **lists}


def _load_task(tx: Tx, owner: str, session: Session, task: Snapshot, seal: _Seal, *, fresh: bool) -> str:
    if task.get("state") not in ended(TASK):
        raise _bad("tasks.state", f"must be one of {', '.join(ended(TASK))}")
    old = task.get("id")
    if not isinstance(old, str) or not 1 <= len(old) <= 256:
        raise _bad("tasks.id", "must be text of 1 to 256 characters")
    there = None if fresh else tasks.find(tx, owner, old)
    if there is not None and there.session == session.uid:
        return old
    new = str(uuid.uuid4()) if fresh or tasks.exists(tx, old) else old
    at = f"tasks.{old}"
    texts = {name: seal.open(f"{at}.{name}", task.get(name)) for name in ("detail", "transcript")}
    try:
        tasks.restore(tx, new, owner, session.uid, task, **texts)
    except (KeyError, TypeError, ValueError):
        raise _bad(f"tasks.{old}", "is not a task as it is exported") from None
    journal.restore(tx, new, owner, session.uid, task["state"], task["ended_at"])
    return new


def _load_result(tx: Tx, task_id: str, old: str, result: Snapshot, seal: _Seal) -> None:
    at = f"results.{old}"
    artifacts = seal.open(f"{at}.artifacts", result.get("artifacts"))
    partial = seal.open(f"{at}.partial", result.get("partial"))
    try:
        results.record(tx, task_id, results.decode(artifacts or "[]"), partial)
    except ValueError:
        raise _bad(f"{at}.artifacts", "must be a list of artifacts") from None


def _load_message(tx: Tx, session: Session, message: Snapshot, names: dict[str, str], seal: _Seal) -> None:
    uid, old = message.get("uid"), message.get("task")
    if not isinstance(uid, str) or message.get("kind") not in sessions.KINDS:
        raise _bad("messages", "must have a uid and a kind")
    if old is not None and old not in names:
        return
    texts = {name: seal.open(f"messages.{uid}.{name}", message.get(name)) for name in ("text", "content")}
    try:
        sessions.restore(tx, session.uid, uid, names.get(old or ""), message, **texts)
    except (KeyError, TypeError, ValueError):
        raise _bad(f"messages.{uid}", "is not a message as it is exported") from None
