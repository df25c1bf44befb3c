"""The read side: task view and journal, brought to the committed revision by the projector.

Owns `revisions`, `unprojected`, `views`, `journal`. Get, streams and webhooks read only what stands here; an event is
keyed (task, revision, number), so projecting twice changes nothing, and all of it can be made again from the rows.
Content is not copied: an artifact's event names its place in the result.
"""

import json
import logging
from dataclasses import dataclass
from typing import Any

from background.database import Database, Row, Tx
from background.errors import StorageUnavailable
from background.results import Result, read
from background.states import TASK, ended

log = logging.getLogger(__name__)

BATCH = 64
ENDS = ended(TASK)


@dataclass(frozen=True)
class View:
    """A task as it may be seen. `result` is there once it has ended, if it has one."""

    task_id: str
    context_id: str
    revision: int
    state: str
    at: int
    origin: str
    cause: str | None
    reason: str | None
    detail: str | None
    folded_into: str | None
    result: Result | None

    @property
    def ended(self) -> bool:
        return self.state in ENDS


@dataclass(frozen=True)
class Event:
    """One journal entry: a state, or an artifact of the result."""

    revision: int
    number: int
    state: str
    at: int
    artifact: dict[str, Any] | None


def begin(tx: Tx, task_id: str, owner: str, session: str) -> None:
    """A task is accepted: it can be seen from its own commit on."""
    first = {"task_id": task_id, "state": "submitted", "now": tx.now}
    tx.x("insert into revisions values (:task_id, 1, :state, :now)", **first)
    tx.x(
        "insert into views values (:task_id, :owner, :session, 1, :state, :now)", owner=owner, session=session, **first
    )
    _write_events(tx, task_id, 1, "submitted", tx.now)


def record(tx: Tx, task_id: str, revision: int, state: str) -> None:
    """A task has changed, in this transaction."""
    tx.x(
        "insert into revisions values (:task_id, :revision, :state, :now)",
        task_id=task_id,
        revision=revision,
        state=state,
        now=tx.now,
    )
    tx.x("insert into unprojected values (:task_id) on conflict do nothing", task_id=task_id)
    tx.ring("revisions")


def project(tx: Tx) -> int:
    """Bring up to `BATCH` tasks to their committed revision. Returns how many there were.

    It rings `view:TASK` for those who watch a task, and `end:TASK` for those who wait for nothing but its end.
    """
    tasks = [row["task_id"] for row in tx.q("select task_id from unprojected limit :limit", limit=BATCH)]
    for task_id in tasks:
        if _project(tx, task_id) in ENDS:
            tx.ring(f"end:{task_id}")
        tx.ring(f"view:{task_id}")
    return len(tasks)


def _project(tx: Tx, task_id: str) -> str | None:
    """Returns the state that is shown now, None if there was nothing new."""
    rows = tx.q(
        "select r.revision, r.state, r.at from revisions r left join views v on v.task_id = r.task_id "
        "where r.task_id = :task_id and r.revision > coalesce(v.revision, 0) order by r.revision",
        task_id=task_id,
    )
    for row in rows:
        _write_events(tx, task_id, row["revision"], row["state"], row["at"])
    if rows:
        tx.x(
            "insert into views select id, owner, session, :revision, :state, :at from tasks where id = :task_id "
            "on conflict (task_id) do update set revision = excluded.revision, state = excluded.state, at = excluded.at",
            task_id=task_id,
            **dict(rows[-1]),
        )
    tx.x("delete from unprojected where task_id = :task_id", task_id=task_id)
    return rows[-1]["state"] if rows else None


def _write_events(tx: Tx, task_id: str, revision: int, state: str, at: int) -> None:
    count = 0
    if state == "completed":
        count = (
            tx.value("select json_array_length(artifacts) from results where task_id = :task_id", task_id=task_id) or 0
        )
    for number in range(count + 1):
        tx.x(
            "insert into journal values (:task_id, :revision, :number, :kind, :state, :artifact, :at) on conflict do nothing",
            task_id=task_id,
            revision=revision,
            number=number,
            kind="artifact" if number < count else "status",
            state=state,
            artifact=number if number < count else None,
            at=at,
        )


def view(tx: Tx, owner: str, task_id: str) -> View | None:
    """The owner's task as projected, or None; another's does not exist."""
    row = tx.one(
        "select v.task_id, v.revision, v.state, v.at, s.id as context_id, t.origin, t.cause, t.reason, t.detail, "
        "t.folded_into from views v join tasks t on t.id = v.task_id join sessions s on s.uid = v.session "
        "where v.task_id = :task_id and v.owner = :owner",
        task_id=task_id,
        owner=owner,
    )
    if row is None:
        return None
    over = row["state"] in ENDS
    end = {} if over else {"reason": None, "detail": None, "folded_into": None}
    return View(**{**dict(row), **end}, result=read(tx, task_id) if over else None)


def after(tx: Tx, task_id: str, revision: int) -> list[Event]:
    """The task's events of later revisions than `revision`, in order, with their artifacts."""
    rows = tx.q(
        "select revision, number, state, at, artifact from journal where task_id = :task_id and revision > :revision "
        "order by revision, number",
        task_id=task_id,
        revision=revision,
    )
    stored = tx.value("select artifacts from results where task_id = :task_id", task_id=task_id) if rows else None
    artifacts = json.loads(stored) if stored else []
    return [
        Event(
            row["revision"],
            row["number"],
            row["state"],
            row["at"],
            None if row["artifact"] is None else artifacts[row["artifact"]],
        )
        for row in rows
    ]


def behind(tx: Tx) -> Row:
    """How many tasks the read side is behind for, and since when: count, oldest_at."""
    row = tx.one(
        "select count(distinct u.task_id) as count, min(r.at) as oldest_at from unprojected u "
        "join revisions r on r.task_id = u.task_id left join views v on v.task_id = u.task_id "
        "where r.revision > coalesce(v.revision, 0)"
    )
    assert row is not None
    return row


async def run_projector(db: Database, poll_s: float = 1.0) -> None:
    """Project for ever: woken by each change, at start, and on a timer."""
    with db.bell.listen("revisions") as ear:
        while True:
            try:
                while await db.write(project) == BATCH:
                    pass
            except StorageUnavailable as error:
                log.warning("the projector waits for the storage: %s", error)
            await ear.wait(poll_s)
