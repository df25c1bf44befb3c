"""Runs: the one queue for everything that must happen, and the one owner of the tables `runs` and `failures`.

A key makes enqueueing twice once; a lane lets one run at a time through, oldest first; a lease says who works, and
the attempt number is the fence that keeps out whoever worked before. It decides nothing about what a run means.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from background import tallies
from background.database import Row, Tx
from background.errors import LeaseLost
from background.states import RUN, guard

SWEEP_LIMIT = 50
FAILURES_KEPT = 50  # of one run, the latest: what is tried for days would fill the table
# Time past the lease is nobody's work: a stopped process's, say. Without a lease nothing is added.
_SPENT = "spent + coalesce(case when :now < lease_until then :now - leased_at else lease_until - leased_at end, 0)"


@dataclass(frozen=True)
class Run:
    """A claimed run, as its worker holds it."""

    id: int
    kind: str
    key: str
    lane: str | None
    task_id: str | None
    params: dict[str, Any]
    attempt: int
    tries: int
    spent: int
    created_at: int

    @classmethod
    def of(cls, row: Row) -> "Run":
        picked = {name: row[name] for name in cls.__dataclass_fields__ if name != "params"}
        return cls(params=json.loads(row["params"]), **picked)


def enqueue(
    tx: Tx,
    kind: str,
    key: str,
    *,
    lane: str | None = None,
    task_id: str | None = None,
    params: dict[str, Any] | None = None,
    due_at: int | None = None,
) -> bool:
    """Put a run into the queue; False if its key is there already. Behind another in its lane it is `waiting`."""
    added = tx.x(
        "insert into runs (kind, key, lane, task_id, params, state, due_at, created_at) values (:kind, :key, :lane, "
        ":task_id, :params, case when exists (select 1 from runs where lane = :lane and ended_at is null) "
        "then 'waiting' else 'queued' end, :due_at, :now) on conflict (key) do nothing",
        kind=kind,
        key=key,
        lane=lane,
        task_id=task_id,
        params=json.dumps(params or {}),
        due_at=tx.now if due_at is None else due_at,
        now=tx.now,
    )
    tx.ring("runs")
    return added == 1


def park(tx: Tx, run: Run) -> bool:
    """Set a run aside, which keeps its place at the head of its lane until an answer comes. False if the attempt is over."""
    return (
        tx.x(
            f"update runs set state = 'parked', spent = {_SPENT}, worker = null, lease_until = null, leased_at = null "
            f"where id = :id and attempt = :attempt and state in {guard(RUN, 'park')}",
            id=run.id,
            attempt=run.attempt,
            now=tx.now,
        )
        == 1
    )


def go_on(tx: Tx, run_id: int, key: str) -> None:
    """A parked run's answer is here: the next run of its task takes its place in the lane."""
    (parked,) = tx.q(
        "update runs set state = 'done', ended_at = :now where id = :id and state = 'parked' returning *",
        id=run_id,
        now=tx.now,
    )
    tx.x(
        "insert into runs (kind, key, lane, task_id, params, state, due_at, spent, created_at) values "
        "(:kind, :key, :lane, :task_id, :params, 'queued', :now, :spent, :now)",
        key=key,
        now=tx.now,
        **{name: parked[name] for name in ("kind", "lane", "task_id", "params", "spent")},
    )
    tx.ring("runs")


def claim(tx: Tx, worker: str, kind: str, room: int) -> list[Run]:
    """Take up to `room` due runs of a kind, oldest first. Each claim is a new attempt."""
    rows = tx.q(
        "update runs set state = 'running', worker = :worker, attempt = attempt + 1, tries = tries + 1, "
        "leased_at = :now, lease_until = :now + :lease where id in (select id from runs where state = 'queued' "
        f"and kind = :kind and due_at <= :now order by due_at, id limit :room) and state in {guard(RUN, 'claim')} "
        "returning *",
        worker=worker,
        kind=kind,
        room=room,
        now=tx.now,
        lease=tx.limits.lease,
    )
    return sorted(map(Run.of, rows), key=lambda run: run.id)


def due(tx: Tx, kinds: tuple[str, ...]) -> dict[str, int]:
    """When the next queued run of each of these kinds is due; a kind with none is left out."""
    return {row["kind"]: row["due_at"] for row in tx.q(_next_of_each(kinds))} if kinds else {}


@lru_cache
def _next_of_each(kinds: tuple[str, ...]) -> str:
    one = "select * from (select kind, due_at from runs where state = 'queued' and kind = '{}' order by due_at limit 1)"
    return " union all ".join(one.format(kind) for kind in kinds)


def renew(tx: Tx, working: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """Move on the leases of what is being worked on, given as (run, attempt). Returns those that are still held.

    A run that nobody works on any more is not renewed, whoever took it: its lease runs out.
    """
    return {(run_id, attempt) for run_id, attempt in working if _renewed(tx, run_id, attempt)}


def _renewed(tx: Tx, run_id: int, attempt: int) -> bool:
    moved = tx.x(
        f"update runs set spent = {_SPENT}, leased_at = :now, lease_until = :now + :lease "
        "where id = :id and attempt = :attempt and state = 'running'",
        id=run_id,
        attempt=attempt,
        now=tx.now,
        lease=tx.limits.lease,
    )
    return moved == 1


def held(tx: Tx, worker: str) -> set[tuple[int, int]]:
    """What a worker holds, as (run, attempt)."""
    rows = tx.q("select id, attempt from runs where worker = :worker and state = 'running'", worker=worker)
    return {(row["id"], row["attempt"]) for row in rows}


def progress(tx: Tx, run: Run) -> None:
    """The run has come a step further: its lease moves on and this is its first try again. Raises `LeaseLost`."""
    moved = tx.x(
        f"update runs set tries = 1, spent = {_SPENT}, leased_at = :now, lease_until = :now + :lease "
        "where id = :id and attempt = :attempt and state = 'running'",
        id=run.id,
        attempt=run.attempt,
        now=tx.now,
        lease=tx.limits.lease,
    )
    if not moved:
        raise LeaseLost


def tries(tx: Tx, run: Run) -> int:
    """The tries since the run's last new checkpoint, this one included. Raises `LeaseLost`."""
    held = tx.value(
        "select tries from runs where id = :id and attempt = :attempt and state = 'running'",
        id=run.id,
        attempt=run.attempt,
    )
    if held is None:
        raise LeaseLost
    return held


def fence(tx: Tx, run: Run) -> None:
    """Nothing, while this attempt holds the run. Raises `LeaseLost` otherwise."""
    if not tx.one(
        "select 1 from runs where id = :id and attempt = :attempt and state = 'running'", id=run.id, attempt=run.attempt
    ):
        raise LeaseLost


def reduce(tx: Tx, run: Run, params: dict[str, Any]) -> None:
    """A part of the run's work is done: from now on these are its parameters. Raises `LeaseLost`."""
    fence(tx, run)
    tx.x("update runs set params = :params where id = :id", id=run.id, params=json.dumps(params))


def hasten(tx: Tx, key: str) -> None:
    """A run that waits for its time is due now."""
    if tx.x(
        "update runs set due_at = :now where key = :key and state = 'queued' and due_at > :now", key=key, now=tx.now
    ):
        tx.ring("runs")


def params_of(tx: Tx, key: str) -> dict[str, Any] | None:
    """The parameters of a run, if there is one of this key."""
    params = tx.value("select params from runs where key = :key", key=key)
    return None if params is None else json.loads(params)


def last_error(tx: Tx, row: Row) -> str | None:
    """Why a run's last try failed, out of its row."""
    cell = row["last_error"]
    return None if cell is None else tx.unseal("runs.last_error", row["key"], cell)


def release(tx: Tx, run: Run, *, due_at: int | None = None, error: str | None = None, counts: bool = True) -> bool:
    """Give a run back to the queue. `counts=False` for a clean hand-back, which is no try."""
    released = tx.x(
        f"update runs set state = 'queued', spent = {_SPENT}, worker = null, lease_until = null, leased_at = null, due_at = :due_at, "
        "tries = tries - :back, last_error = coalesce(:error, last_error) "
        f"where id = :id and attempt = :attempt and state in {guard(RUN, 'release')}",
        id=run.id,
        attempt=run.attempt,
        now=tx.now,
        due_at=tx.now if due_at is None else due_at,
        back=0 if counts else 1,
        error=None if error is None else tx.seal("runs.last_error", run.key, error),
    )
    tx.ring("runs")
    if released:
        _remember(tx, run, error)
    return released == 1


def _remember(tx: Tx, run: Run, error: str | None) -> None:
    """A try came to nothing, or was handed back: the run itself knows its last error alone."""
    if error is not None:
        tallies.add(tx, "failed_tries", run.kind)
    tx.x(
        "insert into failures (run_id, attempt, at, error) values (:run, :attempt, :now, :error) on conflict do nothing",
        run=run.id,
        attempt=run.attempt,
        now=tx.now,
        error=None if error is None else tx.seal("failures.error", f"{run.id}/{run.attempt}", error),
    )
    tx.x("delete from failures where run_id = :run and attempt <= :old", run=run.id, old=run.attempt - FAILURES_KEPT)


def finish(tx: Tx, run: Run, state: str = "done") -> bool:
    """End a run that this attempt holds; False if another was first."""
    row = tx.one(
        f"{_END} and attempt = :attempt and state = 'running' {_NEXT}",
        id=run.id,
        state=state,
        now=tx.now,
        attempt=run.attempt,
    )
    return _vacate(tx, row)


def withdraw(tx: Tx, run_id: int, state: str) -> bool:
    """End a run whoever holds it: the cancel's and the sweep's way. False if it has ended."""
    row = tx.one(f"{_END} and ended_at is null {_NEXT}", id=run_id, state=state, now=tx.now)
    tx.ring("ended")
    return _vacate(tx, row)


def discard(tx: Tx, run_id: int, why: str) -> bool:
    """Somebody has given up what had failed. False for a run that has not failed, or was given up before."""
    row = tx.one(
        f"update runs set state = 'canceled' where id = :id and state in {guard(RUN, 'discard')} returning key",
        id=run_id,
    )
    if row is not None:
        error = tx.seal("runs.last_error", row["key"], why)
        tx.x("update runs set last_error = :error where id = :id", id=run_id, error=error)
    return row is not None


def open_run_of(tx: Tx, task_id: str) -> Row | None:
    """The unfinished turn of a task, or None."""
    return tx.one(
        "select * from runs where task_id = :task_id and ended_at is null and kind in ('turn', 'job')", task_id=task_id
    )


def head(tx: Tx, lane: str) -> str | None:
    """The task whose run is at the head of a lane, at work or about to be; None where nothing is there."""
    return tx.value(
        "select task_id from runs where lane = :lane and state in ('queued', 'running', 'parked')", lane=lane
    )


def cancel_key(tx: Tx, key: str) -> bool:
    """Withdraw a run by its key, if it has not ended."""
    row = tx.one("select id from runs where key = :key and ended_at is null", key=key)
    return row is not None and withdraw(tx, row["id"], "canceled")


def expired(tx: Tx) -> list[Row]:
    """Runs whose lease has run out, the oldest first, `SWEEP_LIMIT` at most."""
    return tx.q(
        "select * from runs where state = 'running' and lease_until < :now order by lease_until limit :limit",
        now=tx.now,
        limit=SWEEP_LIMIT,
    )


def given_back(tx: Tx, kind: str, before: int) -> list[Row]:
    """Queued runs of a kind that had been claimed and were to go on before a time, the oldest first, `SWEEP_LIMIT` at most."""
    return tx.q(
        "select * from runs where state = 'queued' and kind = :kind and due_at < :before and attempt > 0 "
        "order by due_at limit :limit",
        kind=kind,
        before=before,
        limit=SWEEP_LIMIT,
    )


def depth(tx: Tx) -> list[Row]:
    """What waits and works, a row a kind: kind, queued, waiting, running, parked, oldest_due_at."""
    return tx.q(
        "select kind, sum(state = 'queued') as queued, sum(state = 'waiting') as waiting, "
        "sum(state = 'running') as running, sum(state = 'parked') as parked, min(case when state = 'queued' then due_at end) as oldest_due_at "
        "from runs where ended_at is null group by kind order by kind"
    )


_END = (
    f"update runs set state = :state, spent = {_SPENT}, ended_at = :now, worker = null, lease_until = null, "
    "leased_at = null where id = :id"
)


# Who comes next in the lane of a run that ends; there is nobody in most lanes. The index is named: without that, SQLite
# looks for the least id through all runs that ever were.
_NEXT = (
    "returning (select min(id) from runs next indexed by runs_lane where next.lane = runs.lane "
    "and next.ended_at is null and next.id <> runs.id) as next"
)


def _vacate(tx: Tx, ended: Row | None) -> bool:
    """The next of the lane comes to its head."""
    if ended is None:
        return False
    if ended["next"] is not None:
        # An answered task's next run is younger than those that wait, and the head of its lane all the same.
        promoted = tx.x(
            f"update runs set state = 'queued' where id = :id and state in {guard(RUN, 'promote')} and not exists "
            "(select 1 from runs head where head.lane = runs.lane and head.state in ('queued', 'running', 'parked'))",
            id=ended["next"],
        )
        if promoted:
            tx.ring("runs")
    return True


def erase(tx: Tx, task_ids: str, keys: Iterable[str]) -> None:
    """Take away the runs of tasks (a JSON list of ids), and those of these keys, or of keys that go on from one of them
    behind a colon or a dot. Whoever works on one has lost it.
    """
    tx.x("delete from runs where task_id in (select value from json_each(:ids))", ids=task_ids)
    for key in keys:
        for first, last in ((f"{key}:", f"{key};"), (f"{key}.", f"{key}/")):  # each with the character right behind it
            tx.x(
                "delete from runs where key = :key or (key >= :first and key < :last)", key=key, first=first, last=last
            )
    tx.ring("ended")
    tx.ring("runs")


def start_over(tx: Tx, run_id: int) -> None:
    """Take a run from whoever works on it: it goes on at once, from what is stored, and that is no try."""
    tx.x(
        f"update runs set state = 'queued', spent = {_SPENT}, worker = null, lease_until = null, leased_at = null, "
        f"due_at = :now, tries = tries - 1 where id = :id and state in {guard(RUN, 'release')}",
        id=run_id,
        now=tx.now,
    )
    tx.ring("ended")
    tx.ring("runs")


def purge(tx: Tx, kind: str, before: int, limit: int) -> int:
    """Take away runs of a kind that ended before a time; a task's own go with the task. Returns how many."""
    return tx.x(
        "delete from runs where id in (select id from runs where kind = :kind and ended_at < :before limit :limit)",
        kind=kind,
        before=before,
        limit=limit,
    )
