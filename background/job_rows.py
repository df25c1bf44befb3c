"""Jobs as they are read: one, a session's, a batch's, a page of them; each with its present attempt's delivery. Writes nothing."""

import json
from dataclasses import dataclass, replace
from typing import Any

from background import questions
from background.database import Row, Tx
from background.errors import not_found
from background.questions import Asked
from background.states import JOB
from background.times import rfc3339, rfc3339_or_none
from background.usage import Usage

STATUSES = tuple(JOB)  # what a client may ask for


QUESTION_CHARS = 300
UNSAID = "(incognito)"  # in place of a description


@dataclass(frozen=True)
class Job:
    """A job with its present attempt's delivery; `requests` and the like are what all its attempts have cost.

    `model_calls` and `calls_of_tools` are its present attempt's alone. `made_of` is the lowest tier of trust of what it
    has read, and of what its sender had; None where there was nothing. `follow_up` is what its present attempt was asked
    where that goes on from earlier ones, the turns that it `knows`; `asked_by` is the step that asked, if one did.
    """

    id: str
    owner: str
    session: str
    session_id: str
    batch_id: str
    subagent_type: str
    description: str
    prompt: str
    tools: tuple[str, ...]
    attempts: int
    task_id: str | None
    status: str
    reason: str | None
    detail: str | None
    canceled_by: str | None
    partial: bool
    excerpt: str
    report_chars: int
    indexed: bool
    dismissed: bool
    erased: bool
    created_at: int
    started_at: int | None
    completed_at: int | None
    delivery: str
    delivery_task: str | None
    delivery_tries: int
    delivery_error: str | None
    notified_at: int | None
    question: Asked | None
    requests: int
    input_tokens: int
    output_tokens: int
    tool_calls: int
    parent: str | None
    depth: int
    model_calls: int
    calls_of_tools: int
    plugin: str | None
    follow_up: str | None
    knows: tuple[str, ...]
    asked_by: str | None
    incognito: bool
    deterministic: bool
    made_of: int | None

    @classmethod
    def of(cls, tx: Tx, row: Row) -> "Job":
        made = {**dict(row), "tools": tuple(json.loads(row["tools"]))}
        for flag in ("partial", "indexed", "dismissed", "erased", "incognito", "deterministic"):
            made[flag] = bool(made[flag])
        made["knows"] = tuple(json.loads(row["knows"] or "[]"))
        for name in ("description", "prompt", "detail", "excerpt", "follow_up"):
            made[name] = None if row[name] is None else tx.unseal(f"jobs.{name}", row["id"], row[name])
        made["excerpt"] = made["excerpt"] or ""
        made["made_of"] = min(filter(None, (row["made_of"], row["read"])), default=None)
        made["delivery_error"] = _delivery_error(tx, row)
        made["question"] = questions.current(tx, row["task_id"]) if row["status"] == "input_required" else None
        return cls(**{name: made[name] for name in cls.__dataclass_fields__})

    @property
    def ended(self) -> bool:
        return self.completed_at is not None

    @property
    def usage(self) -> Usage:
        """What it has cost, over all its attempts."""
        return Usage(self.requests, self.input_tokens, self.output_tokens, self.tool_calls)

    def said_in(self, *, incognito: bool) -> "Job":
        """The job as it may be spoken of in a session: one that is incognito, in a session that is not, without its words."""
        if incognito or not self.incognito:
            return self
        return replace(self, description=UNSAID, prompt="", follow_up=None, detail=None, excerpt="", question=None)

    def public(self, *, named: bool = False) -> dict[str, Any]:
        """JOB of the contract, without `prompt` and `report`. Unless it or its session was `named`, an incognito one is
        told without a word of what was said.
        """
        told = self._told()
        return told if named or not self.incognito else {**told, **self._unsaid()}

    def _unsaid(self) -> dict[str, Any]:
        """What stands in place of words in an incognito job."""
        delivery = {"state": self.delivery, "attempts": self.delivery_tries, "last_error": None}
        error = {"reason": self.reason, "message": None} if self.reason else None
        asked = {"follow_up": ""} if self.follow_up else {}
        return {
            **asked,
            "description": "",
            "excerpt": "",
            "note": None,
            "question": None,
            "error": error,
            "delivery": delivery,
        }

    def _told(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "session": self.session_id,
            "batch_id": self.batch_id,
            "subagent_type": self.subagent_type,
            "description": self.description,
            "status": self.status,
            "error": {"reason": self.reason, "message": self.detail} if self.reason else None,
            "partial": self.partial,
            "canceled_by": self.canceled_by,
            "note": self.detail if self.canceled_by else None,
            "task_id": self.task_id,
            "created_at": rfc3339(self.created_at),
            "started_at": rfc3339_or_none(self.started_at),
            "completed_at": rfc3339_or_none(self.completed_at),
            "notified": self.delivery == "delivered",
            "notified_at": rfc3339_or_none(self.notified_at),
            "notified_in": self.delivery_task if self.delivery == "delivered" else None,
            "delivery": {"state": self.delivery, "attempts": self.delivery_tries, "last_error": self.delivery_error},
            "indexed": self.indexed,
            "incognito": self.incognito,
            "deterministic": self.deterministic,
            "dismissed": self.dismissed,
            "attempts": self.attempts,
            "usage": vars(self.usage),
            "report_chars": self.report_chars,
            "excerpt": self.excerpt,
            "question": self.question and questions.shown(self.question, QUESTION_CHARS),
            **({"parent": self.parent, "depth": self.depth} if self.parent else {}),  # only of what a job has sent out
            **({"follow_up": self.follow_up} if self.follow_up else {}),  # only of an attempt that goes on from another
            **({"plugin": self.plugin} if self.plugin else {}),  # only of what a plugin has sent out
            **({"made_of": self.made_of} if self.made_of else {}),  # only of what has read something
            **({"erased": True} if self.erased else {}),  # its report is gone, and only then is this said
        }


def _delivery_error(tx: Tx, row: Row) -> str | None:
    """Why its end is not told yet, why its own post is not taken yet, or what its turn failed with and is to try again."""
    if row["last_error"] is not None:
        return tx.unseal("deliveries.last_error", f"{row['id']}/{row['attempts']}", row["last_error"])
    for error, key in (("post_error", "post_key"), ("work_error", "work_key")):
        if row[error] is not None:
            return tx.unseal("runs.last_error", row[key], row[error])
    return None


_SELECT = (
    "select j.*, s.id as session_id, coalesce(d.state, 'none') as delivery, d.task_id as delivery_task, "
    "coalesce(d.tries, r.tries, w.tries, 0) as delivery_tries, d.last_error, r.last_error as post_error, r.key as post_key, "
    "w.last_error as work_error, w.key as work_key, d.notified_at, "
    "coalesce(t.requests, 0) as model_calls, coalesce(t.tool_calls, 0) as calls_of_tools, t.made_of as read from jobs j "
    "join sessions s on s.uid = j.session left join tasks t on t.id = j.task_id "
    "left join deliveries d on d.job_id = j.id and d.attempt = j.attempts "
    # Until it is dispatched it is its own post that is tried, and may say why it waits.
    "left join runs r on r.key = 'dispatch:' || j.id || ':' || j.attempts and r.ended_at is null and r.last_error is not null "
    # Then it is its turn: what that failed with is said until it has come a step further.
    "left join runs w on w.task_id = j.task_id and w.ended_at is null and w.kind in ('turn', 'job') and w.last_error is not null "
    "and (w.state = 'queued' or w.tries > 1)"
)


def by_id(tx: Tx, job_id: str) -> Job:
    row = tx.one(f"{_SELECT} where j.id = :id", id=job_id)
    assert row is not None, job_id
    return Job.of(tx, row)


def known(tx: Tx, job_id: str) -> Job | None:
    """The job, whoever's it is, or None for one that was erased."""
    row = tx.one(f"{_SELECT} where j.id = :id", id=job_id)
    return Job.of(tx, row) if row else None


def is_incognito(tx: Tx, job_id: str) -> bool:
    """Whether it is; a job that was erased is not."""
    return bool(tx.value("select incognito from jobs where id = :id", id=job_id))


def find(tx: Tx, owner: str, job_id: str) -> Job | None:
    """The owner's job, or None; another's does not exist."""
    row = tx.one(f"{_SELECT} where j.id = :id and j.owner = :owner", id=job_id, owner=owner)
    return Job.of(tx, row) if row else None


def get(tx: Tx, owner: str, job_id: str) -> Job:
    """The owner's job. Raises a `not_found` fault."""
    job = find(tx, owner, job_id)
    if job is None:
        raise not_found("job")
    return job


def first_of(tx: Tx, session_uid: str) -> str:
    """What the first job of a session is called; empty where it has none, but for incognito ones."""
    row = tx.one(
        "select id, description from jobs where session = :session and incognito = 0 order by created_at, id limit 1",
        session=session_uid,
    )
    return "" if row is None else tx.unseal("jobs.description", row["id"], row["description"])


def of_batch(tx: Tx, batch_id: str) -> list[Job]:
    """The jobs that are members of a batch, oldest first."""
    return [
        Job.of(tx, row)
        for row in tx.q(
            f"{_SELECT} where j.id in (select job_id from members where batch_id = :batch) order by j.created_at, j.id",
            batch=batch_id,
        )
    ]


def page(
    tx: Tx,
    owner: str,
    *,
    limit: int,
    session: str | None = None,
    status: str | None = None,
    batch: str | None = None,
    dismissed: bool | None = False,
    before: tuple[int, str] | None = None,
) -> list[Job]:
    """The owner's jobs, newest first. `dismissed` None asks for both; `before` is the last (created_at, id) seen."""
    wheres = ["j.owner = :owner"]
    wheres += (
        ["j.session = (select uid from sessions where owner = :owner and id = :session)"] if session is not None else []
    )
    wheres += ["j.status = :status"] if status is not None else []
    wheres += ["j.batch_id = :batch"] if batch is not None else []
    wheres += ["j.dismissed = :dismissed"] if dismissed is not None else []
    wheres += ["(j.created_at, j.id) < (:at, :id)"] if before else []
    at, last = before or (0, "")
    rows = tx.q(
        f"{_SELECT} where {' and '.join(wheres)} order by j.created_at desc, j.id desc limit :limit",
        owner=owner,
        session=session,
        status=status,
        batch=batch,
        dismissed=dismissed,
        at=at,
        id=last,
        limit=limit,
    )
    return [Job.of(tx, row) for row in rows]


def of_session(tx: Tx, session: str, *, running: bool) -> list[Job]:
    """A session's jobs that have not ended, or all of them, oldest first."""
    narrow = "and j.completed_at is null" if running else ""
    return [
        Job.of(tx, row)
        for row in tx.q(f"{_SELECT} where j.session = :session {narrow} order by j.created_at, j.id", session=session)
    ]


def not_told(tx: Tx, session: str, sender: str | None, limit: int) -> list[Job]:
    """What a chat has sent out, or a job in its name, and has not been told the end of; oldest first, `limit` at most.

    What a job has sent out is the chat's once that job has ended.
    """
    mine = "j.parent = :sender" if sender else f"(j.parent is null or {_SENDER_HAS_ENDED})"
    rows = tx.q(
        f"{_SELECT} where j.session = :session and (j.completed_at is null or d.state = 'pending') and {mine} "
        "order by j.created_at, j.id limit :limit",
        session=session,
        sender=sender,
        limit=limit,
    )
    return [Job.of(tx, row) for row in rows]


_SENDER_HAS_ENDED = "not exists (select 1 from jobs sender where sender.id = j.parent and sender.completed_at is null)"


def has_key(tx: Tx, owner: str, key: str) -> bool:
    """Whether the owner has a job of this key."""
    return tx.one("select 1 from jobs where owner = :owner and key = :key", owner=owner, key=key) is not None


def children(tx: Tx, job_id: str) -> list[Job]:
    """The jobs that a job has sent out and that have not ended, oldest first."""
    rows = tx.q(f"{_SELECT} where j.parent = :id and j.completed_at is null order by j.created_at, j.id", id=job_id)
    return [Job.of(tx, row) for row in rows]


def not_dispatched(tx: Tx) -> list[Job]:
    """Jobs that programs have sent out and no task works on yet, whoever's they are."""
    rows = tx.q(f"{_SELECT} where j.status = 'queued' and j.task_id is null and j.key not like 'step:%'")
    return [Job.of(tx, row) for row in rows]


def sent_by_a_turn(tx: Tx, job_id: str) -> bool:
    """Whether a step of a turn sent it out, and not a program."""
    key = tx.value("select key from jobs where id = :id", id=job_id)
    return key is not None and key.startswith("step:")


def sent_by(tx: Tx, owner: str, task_id: str) -> list[Job]:
    """The jobs that a turn's own steps sent out, or asked further."""
    rows = tx.q(
        f"{_SELECT} where j.owner = :owner and j.id in (select id from jobs where owner = :owner and key >= :first and "
        "key < :last union select id from jobs where asked_by >= :first and asked_by < :last)",
        owner=owner,
        first=f"step:{task_id}:",
        last=f"step:{task_id};",
    )
    return [Job.of(tx, row) for row in rows]


def sent_from(tx: Tx, session: str | None, cause: str) -> bool:
    """Whether this session (a uid) has sent out a job or a batch of this id."""
    sql = "select 1 from {} where id = :cause and session = :session"
    return any(tx.one(sql.format(table), cause=cause, session=session) for table in ("jobs", "batches"))


def ids_of_sessions(tx: Tx, uids: str) -> list[str]:
    """The jobs that these sessions (a JSON list of uids) sent out."""
    rows = tx.q("select id from jobs where session in (select value from json_each(:uids))", uids=uids)
    return [row["id"] for row in rows]


def ended_before(tx: Tx, told: int, untold: int, limit: int) -> list[str]:
    """Jobs that ended before a time: `told` where nobody waits to be told, `untold` for the rest; the oldest first."""
    rows = tx.q(
        "select j.id from jobs j left join deliveries d on d.job_id = j.id and d.attempt = j.attempts "
        "where j.completed_at < :told and (coalesce(d.state, '') in ('delivered', 'undeliverable') or "
        "j.completed_at < :untold) and coalesce(d.state, '') <> 'attached' order by j.completed_at limit :limit",
        told=told,
        untold=untold,
        limit=limit,
    )
    return [row["id"] for row in rows]


def by_owner(tx: Tx, job_ids: list[str]) -> dict[str, list[str]]:
    """These jobs, by whose they are."""
    found: dict[str, list[str]] = {}
    ids = json.dumps(job_ids)
    for row in tx.q("select id, owner from jobs where id in (select value from json_each(:ids))", ids=ids):
        found.setdefault(row["owner"], []).append(row["id"])
    return found
