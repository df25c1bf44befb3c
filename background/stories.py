"""A job's whole story, in order, out of the rows: sent out, dispatched, each try, what its turns did, its end, how it came back.

It tells when and what, never what was said. Why something failed is told in words only where the answer level is `full`,
and never of what is incognito.
It reads and writes nothing.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from background import ceilings, sessions, steps
from background.database import Row, Tx
from background.job_rows import Job

# What an ended run of a kind is called, and where more of them can come in one moment, which comes first.
DONE = {
    "dispatch": "dispatched",
    "report": "report handled",
    "index": "indexed later",
    "nudge": "nudge posted",
    "push": "webhook called",
}
OF_THE_JOB = ("dispatch", "report", "index")
ORDER = (
    "spawned", "retried", "asked further", "try failed", "handed back", "dispatched", "task submitted", "briefing submitted", "task working",
    "briefing working", "model call", "tool call",
)  # fmt: skip
LATER = (
    "told", "report handled", "indexed later", "may be told", "joined", "nudge queued", "nudge posted", "webhook called",
    "undeliverable", "discarded",
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """Something that happened: when, what in two words, and facts, which are JSON; `error` is in words, and is content."""

    at: int
    what: str
    facts: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands. What one commit did is told in the order in which it came about."""
        if self.what in ORDER:
            return self.at, ORDER.index(self.what)
        return self.at, len(ORDER) + 1 + (1 + LATER.index(self.what) if self.what in LATER else 0)


@dataclass(frozen=True)
class Story:
    """`lines` in order, and `waiting`: what of it the queue still holds. `level` is the strictest of its turns' levels."""

    level: str
    lines: list[Line]
    waiting: list[dict[str, Any]]


def of_job(tx: Tx, job: Job) -> Story:
    """The whole story of a job, all its attempts."""
    turns = _turns(tx, job)
    runs = _runs(tx, job, turns)
    level = ceilings.strictest("full", *(turn["ceiling"] for turn in turns))
    lines = [
        Line(job.created_at, "spawned", _sent(tx, job)),
        *_retries(runs),
        *_ends_of_runs(runs),
        *_failures(tx, runs),
        *_changes(tx, turns),
        *_steps(tx, turns),
        *_joins(tx, job),
        *_deliveries(tx, job, runs, turns),
    ]
    told = [line if level == "full" and not job.incognito else Line(line.at, line.what, line.facts) for line in lines]
    return Story(level, sorted(told, key=lambda line: line.place), [_waits(row) for row in runs if not row["ended_at"]])


def _sent(tx: Tx, job: Job) -> dict[str, Any]:
    key = tx.value("select key from jobs where id = :id", id=job.id)
    by, _, rest = key.partition(":")
    facts = {"session": job.session_id, "subagent_type": job.subagent_type}
    facts |= {"parent": job.parent} if job.parent else {}
    facts |= {"plugin": job.plugin} if job.plugin else {}
    first = tx.value("select batch_id from members where job_id = :id order by attempt limit 1", id=job.id)
    return {**facts, "batch_id": first, **({"task_id": rest.partition(":")[0]} if by == "step" else {})}


# -- which turns and runs it is the story of


def _turns(tx: Tx, job: Job) -> list[Row]:
    """The tasks that worked on it, and the turns that were to tell of it, or have."""
    return tx.q(
        "select t.id, t.session, t.ceiling, t.origin, t.reason, t.folded_into, t.ended_at from tasks t where t.session = "
        "(select uid from sessions where owner = :owner and id = :background) "
        "union select t.id, t.session, t.ceiling, t.origin, t.reason, t.folded_into, t.ended_at from tasks t "
        "where t.id in (select task_id from deliveries where job_id = :job and task_id is not null) "
        "union select t.id, t.session, t.ceiling, t.origin, t.reason, t.folded_into, t.ended_at from tasks t "
        "where t.session = :session and t.origin = 'background-resume' and t.created_at >= :since and (t.cause = :job "
        "or t.cause in (select batch_id from members where job_id = :job))",
        owner=job.owner,
        background=f"{sessions.BACKGROUND}{job.id}",
        session=job.session,
        since=job.created_at,
        job=job.id,
    )


def _runs(tx: Tx, job: Job, turns: list[Row]) -> list[Row]:
    """The runs of its turns, those that are its own, and the nudges of its batches."""
    ids = [turn["id"] for turn in turns]
    found = tx.q("select * from runs where task_id in (select value from json_each(:ids))", ids=json.dumps(ids))
    prefixes = [f"{kind}:{job.id}:" for kind in OF_THE_JOB]
    for batch, generation in _generations(tx, job):
        prefixes += [f"nudge:{batch}:replay:{job.id}."]
        found += tx.q("select * from runs where key = :key", key=f"nudge:{batch}:{generation}")
    for task_id in ids:
        prefixes += [f"nudge:rest:{task_id}.{job.id}"]
        found += [
            row
            for row in tx.q("select * from runs where key = :key", key=f"nudge:again:{task_id}")
            if job.id in json.loads(row["params"]).get("jobs", ())
        ]
    for prefix in prefixes:
        found += tx.q(
            "select * from runs where key >= :first and key < :last", first=prefix, last=f"{prefix}\U0010ffff"
        )
    return list({row["id"]: row for row in found}.values())


def _generations(tx: Tx, job: Job) -> list[tuple[str, int]]:
    rows = tx.q("select batch_id, coalesce(generation, 0) as generation from members where job_id = :id", id=job.id)
    return [(row["batch_id"], row["generation"]) for row in rows]


# -- what happened to them


def _retries(runs: list[Row]) -> Iterator[Line]:
    for row in runs:
        attempt = json.loads(row["params"]).get("attempt", 1) if row["kind"] == "dispatch" else 1
        if attempt > 1:
            further = json.loads(row["params"]).get("follow_up")
            yield Line(row["created_at"], "asked further" if further else "retried", {"attempt": attempt})


def _ends_of_runs(runs: list[Row]) -> Iterator[Line]:
    for row in runs:
        if row["kind"] == "nudge":
            yield Line(row["created_at"], "nudge queued", _named(row))
        if row["kind"] in DONE and row["ended_at"] is not None:
            done = DONE[row["kind"]] if row["state"] == "done" else f"{row['kind']} {row['state']}"
            yield Line(row["ended_at"], done, {**_named(row), "attempts": row["attempt"]})


def _named(row: Row) -> dict[str, Any]:
    """Which run it is, for a grep in the log, and what of its parameters are ids."""
    params = json.loads(row["params"])
    ids = {name: params[name] for name in ("attempt", "batch", "generation", "webhook") if name in params}
    event = {"event": f"{params['revision']}.{params['number']}"} if row["kind"] == "push" else {}
    return {"run": row["id"], **({"task_id": row["task_id"]} if row["task_id"] else {}), **ids, **event}


def _failures(tx: Tx, runs: list[Row]) -> Iterator[Line]:
    by_id = {row["id"]: row for row in runs}
    ids = json.dumps(list(by_id))
    for row in tx.q("select * from failures where run_id in (select value from json_each(:ids))", ids=ids):
        run = by_id[row["run_id"]]
        facts = {"kind": run["kind"], "run": run["id"], "attempt": row["attempt"]}
        facts |= {"task_id": run["task_id"]} if run["task_id"] else {}
        if row["error"] is None:
            yield Line(row["at"], "handed back", facts)
        else:
            error = tx.unseal("failures.error", f"{row['run_id']}/{row['attempt']}", row["error"])
            yield Line(row["at"], "try failed", facts, error)


def _changes(tx: Tx, turns: list[Row]) -> Iterator[Line]:
    """Each committed change of its turns' states."""
    by_id = {turn["id"]: turn for turn in turns}
    rows = tx.q(
        "select r.* from revisions r where r.kind = 'status' and r.task_id in (select value from json_each(:ids))",
        ids=json.dumps(list(by_id)),
    )
    for row in rows:
        turn = by_id[row["task_id"]]
        ends = row["at"] == turn["ended_at"]
        reason = {"reason": turn["reason"]} if ends and turn["reason"] else {}
        folded = {"folded_into": turn["folded_into"]} if ends and turn["folded_into"] else {}
        yield Line(row["at"], f"{_noun(turn)} {row['state']}", {"task_id": turn["id"], **reason, **folded})


def _noun(turn: Row) -> str:
    return {"background": "task", "background-resume": "briefing"}.get(turn["origin"], "turn")


def _steps(tx: Tx, turns: list[Row]) -> Iterator[Line]:
    """Model calls with what they cost, and tools with their names."""
    ids = json.dumps([turn["id"] for turn in turns])
    rows = tx.q("select * from steps where task_id in (select value from json_each(:ids)) order by at, name", ids=ids)
    facts = {(row["task_id"], row["name"]): json.loads(row["facts"]) for row in rows}
    for row in rows:
        own = dict(facts[row["task_id"], row["name"]])
        if row["name"].startswith(steps.ANSWER):
            calls = list(own.pop("calls", {}).values())
            yield Line(
                row["at"], "model call", {"task_id": row["task_id"], **own, **({"calls": calls} if calls else {})}
            )
        else:
            _, number, call = row["name"].split(":", 2)
            asked = facts.get((row["task_id"], f"{steps.ANSWER}{number}"), {}).get("calls", {})
            yield Line(row["at"], "tool call", {"task_id": row["task_id"], "tool": asked.get(call, call)})


def _joins(tx: Tx, job: Job) -> Iterator[Line]:
    rows = tx.q(
        "select j.* from members m join joins j on j.batch_id = m.batch_id and j.generation = m.generation where m.job_id = :id",
        id=job.id,
    )
    for row in rows:
        facts = {"batch": row["batch_id"], "generation": row["generation"], "counts": json.loads(row["counts"])}
        yield Line(row["at"], "joined", {**facts, **({"task_id": row["task_id"]} if row["task_id"] else {})})


def _deliveries(tx: Tx, job: Job, runs: list[Row], turns: list[Row]) -> Iterator[Line]:
    for row in tx.q("select * from deliveries where job_id = :id order by attempt", id=job.id):
        facts = {"attempt": row["attempt"]}
        told = {**facts, **({"task_id": row["task_id"]} if row["task_id"] else {})}
        name = f"{job.id}/{row['attempt']}"
        error = None if row["last_error"] is None else tx.unseal("deliveries.last_error", name, row["last_error"])
        if row["ready_at"] is not None:
            yield Line(row["ready_at"], "may be told", facts, error if row["state"] == "pending" else None)
        if row["notified_at"] is not None:
            yield Line(row["notified_at"], "told", told)
        if row["discarded_at"] is not None:
            yield Line(row["discarded_at"], "discarded", {**facts, "by": row["discarded_by"]})
        elif row["state"] == "undeliverable":
            at = _given_up(job, row, runs, turns)
            yield Line(at, "undeliverable", {**facts, "tries": row["tries"]}, error)


def _given_up(job: Job, row: Row, runs: list[Row], turns: list[Row]) -> int:
    """When no turn could tell an end any more: with its retry, or with the last turn that failed to."""
    for run in runs:
        if run["key"] == f"dispatch:{job.id}:{row['attempt'] + 1}":
            return run["created_at"]
    return max([row["ended_at"], *(turn["ended_at"] for turn in turns if turn["ended_at"])])


def _waits(row: Row) -> dict[str, Any]:
    """An unfinished run: what it is, how far it is, and when it is due."""
    facts = {"kind": row["kind"], **_named(row), "state": row["state"], "due_at": row["due_at"]}
    return {**facts, "attempts": row["attempt"], "worker": row["worker"]}
