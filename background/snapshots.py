"""Snapshots: a session as JSON that can be carried elsewhere, and made into a session again. Owns no table.

What was said and answered stays sealed in it, bound to the snapshot's session and to its place; it can be opened where
one of the keys is. It holds ended turns alone: no key, token, receipt or webhook, nothing that waits or runs, and no job.
"""

import base64
import binascii
import json
import uuid
from dataclasses import dataclass, field, replace
from typing import Any

from background import earlier, gists, ids, journal, messages, results, sessions, tasks
from background.database import Row, Tx
from background.errors import Fault, Unsealable
from background.results import artifact_id
from background.sessions import Session
from background.snapshot_shape import FORMAT, SEALED, VERSION, bad, checked

Snapshot = dict[str, Any]
NAMES = uuid.UUID("6f2d3a0e-6a0b-4c53-9d43-6b2f0f8f7a41")  # of tasks whose own id is another's


def export(tx: Tx, session: Session) -> Snapshot:
    """The session as it stands. Every text in it is a cell, sealed for this place in this snapshot.

    Raises a `conflict` fault for a job's own session, whose turns are nothing without the job, and for an incognito one,
    of which there is no second copy.
    """
    if session.kind == "background":
        raise Fault("conflict", "A job's own session is not taken elsewhere; its report is in the job.")
    if session.incognito:
        raise Fault("conflict", "An incognito session is neither exported nor copied.")
    turns = tasks.ended_of_session(tx, session.uid)
    ids = {row["id"] for row in turns}
    parts = earlier.turns_of_folded(tx, session.uid)
    log = [
        replace(entry, task_id=parts.get(entry.task_id or "", entry.task_id))
        for entry in messages.whole_log(tx, session.uid)
    ]
    kept = results.read_many(tx, list(ids))
    seal = _Seal(tx, session.id)
    return {
        "format": FORMAT,
        "version": VERSION,
        "session": {"id": session.id, "created_at": session.created_at, "updated_at": session.updated_at},
        "left_out": left_out(tx, session),
        "tasks": [_task(tx, row, seal) for row in turns],
        "results": {task_id: _result(result, seal, task_id) for task_id, result in kept.items()},
        "messages": [_message(entry, seal) for entry in log if entry.task_id is None or entry.task_id in ids],
    }


def left_out(tx: Tx, session: Session) -> Snapshot:
    """What a snapshot of the session does not hold though it was said there: `turns` that have not ended."""
    return {"turns": sessions.with_running(tx, session).running}


class _Seal:
    """Seals texts for their places in one snapshot, and opens them again."""

    def __init__(self, tx: Tx, session_id: str) -> None:
        self._tx, self._session = tx, session_id

    def close(self, place: str, text: str | None) -> str | None:
        if text is None:
            return None
        cell = self._tx.seal(f"snapshot.{place}", self._session, text)
        return SEALED + base64.b64encode(cell).decode()

    def open(self, place: str, cell: str | None) -> str | None:
        """The text of a cell. Raises an `invalid` fault for one that was not sealed for this place with a key of ours."""
        if cell is None:
            return None
        try:
            sealed = base64.b64decode(cell.removeprefix(SEALED), validate=True)
            return self._tx.unseal(f"snapshot.{place}", self._session, sealed)
        except (binascii.Error, ValueError, Unsealable):
            raise bad(place, "cannot be opened: altered, moved, or sealed with a key that is not here") from None


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


def _message(entry: messages.Whole, seal: _Seal) -> Snapshot:
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

    What is there stays: a task of the same id and session keeps its result, and one that has none is given the
    snapshot's. A task whose id is taken elsewhere gets another, the same at each load. A result without a task is passed
    over, and a task without a result has none. Raises `invalid` faults that name the place, and a `conflict` fault where
    `to` is another session that was not made of this one.
    """
    given = checked(snapshot)
    session = sessions.open_session(tx, owner, to or given.session_id)
    sessions.seen_at(tx, session.uid, given.updated_at)
    loading = _Loading(tx, owner, session, _Seal(tx, given.session_id), fresh_ids)
    known = any(message["uid"] in loading.logged for message in given.messages)
    if session.id != given.session_id and loading.logged and not known:
        raise Fault(
            "conflict", "There is another session of this id already; nothing was put into it.", session=session.id
        )
    gists.drop(tx, session.uid)  # turns of earlier times may come to those that it covers
    for task in given.tasks:
        loading.task(task)
    for task_id, result in given.results.items():
        loading.result(task_id, result)
    for message in given.messages:
        loading.message(message)
    return session


@dataclass
class _Loading:
    """One snapshot on its way into a session; `names` are the ids that its tasks have here."""

    tx: Tx
    owner: str
    session: Session
    seal: _Seal
    fresh: bool
    names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.logged = messages.logged(self.tx, self.session.uid)

    def task(self, task: Snapshot) -> None:
        old = task["id"]
        new, there = self._named(old)
        self.names[old] = new
        if there:
            return
        texts = {name: self.seal.open(f"tasks.{old}.{name}", task[name]) for name in ("detail", "transcript")}
        ended_at = min(task["ended_at"], self.tx.now)
        times = {"created_at": min(task["created_at"], ended_at), "ended_at": ended_at}
        tasks.restore(self.tx, new, self.owner, self.session.uid, {**task, **times}, **texts)
        journal.restore(self.tx, new, self.owner, self.session.uid, task["state"], ended_at)

    def _named(self, old: str) -> tuple[str, bool]:
        """The id that a task has here, and whether it is here already."""
        by_name = str(uuid.uuid5(NAMES, f"{self.session.uid}/{old}"))
        for name in () if self.fresh else (old, by_name):
            found = tasks.find(self.tx, self.owner, name)
            if found is not None and found.session == self.session.uid:
                return name, True
            if not tasks.exists(self.tx, name):
                return name, False
        return str(ids.uuid7()), False

    def result(self, old: str, result: Snapshot) -> None:
        at, new = f"results.{old}", self.names[old]
        artifacts = self.seal.open(f"{at}.artifacts", result["artifacts"])
        partial = self.seal.open(f"{at}.partial", result["partial"])
        try:
            found = results.decode(artifacts or "[]")
        except ValueError:
            raise bad(f"{at}.artifacts", "must be a list of artifacts") from None
        ours = {artifact_id(old, number): artifact_id(new, number) for number in range(1, len(found) + 1)}
        for artifact in found:
            artifact["artifactId"] = ours.get(artifact.get("artifactId", ""), artifact.get("artifactId"))
        results.record(self.tx, new, found, partial)

    def message(self, message: Snapshot) -> None:
        uid, old = message["uid"], message["task"]
        if uid in self.logged or (old is not None and old not in self.names):
            return
        text, content = (self.seal.open(f"messages.{uid}.{name}", message[name]) for name in ("text", "content"))
        carried = {**message, "created_at": min(message["created_at"], self.tx.now)}
        said = None if content is None else self._at_home(json.loads(content))
        task = None if old is None else self.names[old]
        messages.restore(self.tx, self.session.uid, uid, task, carried, text=text, content=said)
        if carried["kind"] == "user" and text:
            sessions.titled(self.tx, self.session.uid, text)

    def _at_home(self, content: Snapshot) -> str:
        """The protocol's message, which names its session and tasks by what they are called here."""
        if "contextId" in content:
            content["contextId"] = self.session.id
        if "taskId" in content:
            content["taskId"] = self.names.get(content["taskId"], content["taskId"])
        if "referenceTaskIds" in content:
            content["referenceTaskIds"] = [self.names.get(name, name) for name in content["referenceTaskIds"]]
        return json.dumps(content, ensure_ascii=False)
