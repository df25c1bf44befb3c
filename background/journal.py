"""The read side: task view and journal, brought to the committed revision by the projector.

Owns `revisions`, `views`, `journal`, `fragments`. Get, streams and webhooks read only what stands here; an event is
keyed (task, revision, number), so projecting twice changes nothing, and all of it can be made again from the rows.
Content is not copied: an event names its place in the result, or the question or fragment of its revision.
"""

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import Any

from background import questions, results, webhooks
from background.database import Database, Row, Tx
from background.errors import StorageUnavailable
from background.questions import Asked
from background.results import Result, artifact_id
from background.states import INTERRUPTED, TASK, ended

log = logging.getLogger(__name__)

BATCH = 64
NEWEST = 1 << 62
ENDS = ended(TASK)
STOPS = (*ENDS, *INTERRUPTED)  # where a blocking send stops waiting


@dataclass(frozen=True)
class View:
    """A task as it may be seen. `result` is there once it has ended, if it has one, and before that if pieces of it were
    committed; `question` while it is parked.
    """

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
    question: Asked | None
    stopped: str | None  # of a canceled one: the state in which it was stopped
    incognito: bool  # whether its session is
    initiated_by: str | None = None  # who sent the message that made it, where that was not its owner

    @property
    def left(self) -> str | None:
        """The text that a failed task left, where no pieces of it were told: those stand for it, and say that they are pieces."""
        return self.result.partial if self.state == "failed" and self.result and not self.result.artifacts else None

    @property
    def ended(self) -> bool:
        return self.state in ENDS

    @property
    def parked(self) -> bool:
        return self.state in INTERRUPTED


@dataclass(frozen=True)
class Event:
    """One journal entry: a state, an artifact of the result, or a piece of an artifact that is not whole yet.

    `append`: the piece goes behind those before it, and otherwise takes the place of whatever was there. `left`: the text
    that a task which failed left, see `View.left`.
    """

    revision: int
    number: int
    state: str
    at: int
    artifact: dict[str, Any] | None
    question: Asked | None = None
    whole: bool = True
    append: bool = False
    left: str | None = None


def begin(tx: Tx, task_id: str, owner: str, session: str, *, listed: bool) -> None:
    """A task is accepted: it can be seen from its own commit on. A job's own task is not `listed` with others, nor is one
    of an incognito session.
    """
    first = {"task_id": task_id, "now": tx.now}
    tx.x("insert into revisions values (:task_id, 1, 'status', 'submitted', :now, 1)", **first)
    tx.x(
        "insert into views values (:task_id, :owner, :session, 1, 'submitted', :now - :now % 1000, :listed)",
        owner=owner,
        session=session,
        listed=listed,
        **first,
    )
    tx.x("insert into journal values (:task_id, 1, 0, 'status', 'submitted', null, :now)", **first)


def record(tx: Tx, task_id: str, revision: int, state: str, kind: str = "status") -> None:
    """A task has changed, in this transaction."""
    tx.x(
        "insert into revisions values (:task_id, :revision, :kind, :state, :now, 0)",
        task_id=task_id,
        revision=revision,
        kind=kind,
        state=state,
        now=tx.now,
    )
    tx.ring("revisions")


def fragment(tx: Tx, task_id: str, revision: int, text: str) -> None:
    """A piece of the task's unfinished answer, as the change of this revision."""
    tx.x(
        "insert into fragments (task_id, revision, content) values (:task, :revision, :content)",
        task=task_id,
        revision=revision,
        content=tx.seal("fragments.content", f"{task_id}/{revision}", text),
    )
    record(tx, task_id, revision, "working", "fragment")


def drop_fragments(tx: Tx, task_id: str) -> None:
    """The answer is whole, or is begun anew: its pieces are not wanted any more."""
    tx.x("delete from fragments where task_id = :task", task=task_id)


def project(tx: Tx) -> int:
    """Bring the read side up by at most `BATCH` revisions. Returns how many there were.

    It rings `view:TASK` for those who watch a task, and `end:TASK` for those who wait for it to end or to be parked.
    """
    rows = tx.q(
        "update revisions set projected = 1 where projected = 0 and (task_id, revision) in "
        "(select task_id, revision from revisions where projected = 0 order by at, task_id, revision limit :limit) "
        "returning task_id, revision, kind, state, at",
        limit=BATCH,
    )
    if not rows:
        return 0
    rows.sort(key=lambda row: (row["task_id"], row["revision"]))
    _write_events(tx, rows)
    latest = {row["task_id"]: row for row in rows}
    # Of the status alone, and as clients are told it; a piece of an answer is no change of it.
    times = {row["task_id"]: row["at"] - row["at"] % 1000 for row in rows if row["kind"] == "status"}
    tx.x(
        "insert into views select t.id, t.owner, t.session, json_extract(n.value, '$[1]'), json_extract(n.value, '$[2]'), "
        "json_extract(n.value, '$[3]'), t.origin <> 'background' and s.incognito = 0 from json_each(:news) n "
        "join tasks t on t.id = json_extract(n.value, '$[0]') join sessions s on s.uid = t.session where true on conflict (task_id) do update set "
        "revision = excluded.revision, state = excluded.state, at = case excluded.at when 0 then at else excluded.at end "
        "where revision < excluded.revision",
        news=json.dumps([(task, row["revision"], row["state"], times.get(task, 0)) for task, row in latest.items()]),
    )
    for task_id, row in latest.items():
        if row["state"] in STOPS:
            tx.ring(f"end:{task_id}")
        tx.ring(f"view:{task_id}")
    return len(rows)


def _write_events(tx: Tx, rows: list[Row]) -> None:
    """The artifacts of an end come before the end itself."""
    done = [row["task_id"] for row in rows if row["state"] == "completed"]
    pieces = _pieces(tx, done) if done else {}
    entries = []
    for row in rows:
        count = pieces.get(row["task_id"], 0) if row["state"] == "completed" else 0
        at = (row["task_id"], row["revision"])
        entries += [(*at, number, "artifact", row["state"], number, row["at"]) for number in range(count)]
        entries.append((*at, count, row["kind"], row["state"], None, row["at"]))
    tx.x(
        "insert into journal select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'), "
        "json_extract(value, '$[6]') from json_each(:entries) where true on conflict do nothing",
        entries=json.dumps(entries),
    )
    webhooks.announce(tx, [entry[:3] for entry in entries])


def _pieces(tx: Tx, task_ids: list[str]) -> dict[str, int]:
    rows = tx.q(
        "select task_id, pieces from results where task_id in (select value from json_each(:ids))",
        ids=json.dumps(task_ids),
    )
    return {row["task_id"]: row["pieces"] for row in rows}


_SEEN = (
    "select v.task_id, v.revision, v.state, v.at, s.id as context_id, s.incognito, t.origin, t.cause, t.initiated_by, t.reason, t.detail, "
    "t.folded_into{} "
    "from views v join tasks t on t.id = v.task_id join sessions s on s.uid = v.session {} "
)
VIEWS = _SEEN.format("", "")  # for `seen`, with a `where` behind it
WHOLE_VIEWS = _SEEN.format(", r.artifacts, r.partial", "left join results r on r.task_id = v.task_id")


def view(tx: Tx, owner: str, task_id: str, *, content: bool = True) -> View | None:
    """The owner's task as projected, or None; another's does not exist. Without `content` no artifact is read."""
    one = "where v.task_id = :task_id and v.owner = :owner"
    row = tx.one((WHOLE_VIEWS if content else VIEWS) + one, task_id=task_id, owner=owner)
    return None if row is None else seen(tx, row, content=content)


def seen(tx: Tx, row: Row, *, content: bool) -> View:
    """The view in a row of `VIEWS`, or of `WHOLE_VIEWS` with its content."""
    task_id, over = row["task_id"], row["state"] in ENDS
    shown = {name: row[name] for name in ("task_id", "revision", "state", "at", "context_id", "origin", "cause")}
    shown |= {"initiated_by": row["initiated_by"], "incognito": bool(row["incognito"])}
    return View(
        **shown,
        reason=row["reason"] if over else None,
        detail=tx.unseal("tasks.detail", task_id, row["detail"]) if over and row["detail"] is not None else None,
        folded_into=row["folded_into"] if over else None,
        result=_content(tx, task_id, row) if content else None,
        question=questions.asked_after(tx, task_id, row["revision"] - 1).get(row["revision"])
        if row["state"] in INTERRUPTED
        else None,
        stopped=_state_before(tx, task_id, row["revision"]) if row["state"] == "canceled" else None,
    )


def _state_before(tx: Tx, task_id: str, revision: int) -> str | None:
    return tx.value(
        "select state from revisions where task_id = :task and revision = :revision",
        task=task_id,
        revision=revision - 1,
    )


def _content(tx: Tx, task_id: str, row: Row) -> Result | None:
    """What it ended with; before the end, or where that brought nothing, the pieces that were told."""
    result = results.of(tx, row) if row["state"] in ENDS and row["artifacts"] is not None else None
    if row["state"] == "submitted" or (result and result.artifacts):
        return result
    cells = tx.q(
        "select revision, content from fragments where task_id = :task and revision <= :revision order by revision",
        task=task_id,
        revision=row["revision"],
    )
    texts = [tx.unseal("fragments.content", f"{task_id}/{each['revision']}", each["content"]) for each in cells]
    return Result([_piece(task_id, *texts)], result and result.partial) if cells else result


def _piece(task_id: str, *texts: str) -> dict[str, Any]:
    """Of an answer that is not whole, and may never be: an artifact that says so, a part a piece, as streams append them."""
    return {
        "artifactId": artifact_id(task_id),
        "parts": [{"text": text} for text in texts],
        "metadata": {"partial": True},
    }


def after(tx: Tx, task_id: str, revision: int, until: int = NEWEST) -> list[Event]:
    """The task's events of later revisions than `revision`, up to `until`, in order, with their content.

    A piece of an answer that is whole by now, or was begun anew, is left out: the artifact that follows has it all.
    """
    rows = tx.q(
        "select revision, number, kind, state, at, artifact from journal where task_id = :task_id "
        "and revision > :revision and revision <= :until order by revision, number",
        task_id=task_id,
        revision=revision,
        until=until,
    )
    kinds = {row["kind"] for row in rows}
    result = results.read(tx, task_id) if "artifact" in kinds else None
    pieces = _pieces_after(tx, task_id, revision, until) if "fragment" in kinds else {}
    first = tx.value("select min(revision) from fragments where task_id = :task", task=task_id) if pieces else None
    states = {row["state"] for row in rows}
    asked = questions.asked_after(tx, task_id, revision) if not states.isdisjoint(INTERRUPTED) else {}
    left = _left(tx, task_id) if "failed" in states else None
    found = []
    for row in rows:
        at = (row["revision"], row["number"], row["state"], row["at"])
        if row["kind"] == "fragment":
            found += [Event(*at, pieces[at[0]], whole=False, append=at[0] != first)] if at[0] in pieces else []
        elif row["kind"] == "artifact":
            there = result is not None and row["artifact"] < len(result.artifacts)  # not after it was scrubbed
            found += [Event(*at, result.artifacts[row["artifact"]])] if result is not None and there else []
        else:
            found.append(Event(*at, None, asked.get(at[0]), left=left if row["state"] == "failed" else None))
    return found


def _left(tx: Tx, task_id: str) -> str | None:
    """As `View.left`."""
    if tx.one("select 1 from fragments where task_id = :task limit 1", task=task_id) is not None:
        return None
    result = results.read(tx, task_id)
    return result.partial if result and not result.artifacts else None


def _pieces_after(tx: Tx, task_id: str, revision: int, until: int) -> dict[int, dict[str, Any]]:
    rows = tx.q(
        "select revision, content from fragments where task_id = :task and revision > :revision and revision <= :until",
        task=task_id,
        revision=revision,
        until=until,
    )
    return {
        row["revision"]: _piece(task_id, tx.unseal("fragments.content", f"{task_id}/{row['revision']}", row["content"]))
        for row in rows
    }


def behind(tx: Tx) -> Row:
    """How many tasks the read side is behind for, and since when: count, oldest_at."""
    (row,) = tx.q("select count(distinct task_id) as count, min(at) as oldest_at from revisions where projected = 0")
    return row


async def run_projector(db: Database, poll_s: float = 1.0) -> None:
    """Project for ever: in the commits that change something, at start, and on a timer for what came otherwise."""
    with db.bell.listen("revisions") as ear:
        done = BATCH
        while True:
            try:
                patience_s = 0 if done == BATCH else poll_s
                done = await db.write_along("revisions", ear, patience_s, project, last=True)
            except StorageUnavailable as error:
                log.warning("the projector waits for the storage: %s", error)
                await asyncio.sleep(poll_s)


def erase(tx: Tx, task_ids: str) -> None:
    """Take away what could be seen of these tasks (a JSON list of ids), and wake who still looks."""
    for task_id in json.loads(task_ids):
        tx.ring(f"end:{task_id}")
        tx.ring(f"view:{task_id}")
    mine = "where task_id in (select value from json_each(:ids))"
    tx.x(f"delete from fragments {mine}", ids=task_ids)
    tx.x(f"delete from journal {mine}", ids=task_ids)
    tx.x(f"delete from views {mine}", ids=task_ids)
    tx.x(f"delete from revisions {mine}", ids=task_ids)


def restore(tx: Tx, task_id: str, owner: str, session: str, state: str, at: int) -> None:
    """A task that ended elsewhere: all that can be seen of it is its end."""
    end = {"task_id": task_id, "state": state, "at": at}
    tx.x("insert into revisions values (:task_id, 1, 'status', :state, :at, 1)", **end)
    tx.x(
        "insert into views values (:task_id, :owner, :session, 1, :state, :at - :at % 1000, 1)",
        owner=owner,
        session=session,
        **end,
    )
    tx.x("insert into journal values (:task_id, 1, 0, 'status', :state, null, :at)", **end)
