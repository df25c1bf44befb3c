"""The worker: claims due runs, has their handlers run, keeps their leases, takes over what others left behind.

It knows no kind of work: a handler is found by the run's kind. A process claims only kinds it has handlers for; one
without turns neither counts as a live worker nor sweeps. Owns `workers`.
"""

import asyncio
import logging
import os
import random
import secrets
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from background import ceilings, queue, tallies, tasks, terminal
from background.about import about
from background.database import Database, Row, Tx
from background.errors import LeaseLost, StorageUnavailable, TryAgain
from background.limits import SECOND
from background.queue import Run
from background.signals import Ear
from background.terminal import Outcome

T = TypeVar("T")
log = logging.getLogger(__name__)

POLL_S = 1.0
SHOWN_S = 3600  # a silent worker is listed for so long
SWEEP_S = 5.0  # at the longest: with a short lease, as often as it is renewed
BACKOFF_S = (0.5, 60.0)  # first and longest pause after a handler failed
JITTER = 0.2
Room = list[tuple[tuple[str, ...], int]]  # kinds that share a pool, and its free slots
Begin = Callable[[Tx, Run], Any]
TURNS = ("turn", "job")  # what a live worker runs; the rest follows from it


@dataclass(frozen=True)
class Handler:
    """How a kind of run is worked on. `pool` names the slots that it shares with other kinds.

    `begin` is its first transaction, and part of the commit that claims the run; `run` is given what came of it, and
    ends the run itself, in the transaction that stores what came of that. Both may raise `TryAgain`; `LeaseLost`
    passes through; any other exception is logged with an id and tried again, a turn's up to its tries.
    """

    run: Callable[[Any], Awaitable[None]]
    pool: str
    begin: Begin = lambda _, run: run


class Claimed(NamedTuple):
    """A run that is this worker's now, and how it began: what its handler is given, or what went wrong."""

    run: Run
    begun: Any
    error: Exception | None


class Worker:
    """Works until it is stopped. `pools` are the slots by name."""

    def __init__(self, db: Database, handlers: Mapping[str, Handler], pools: Mapping[str, int]) -> None:
        self.id = secrets.token_hex(6)
        self._db = db
        self._handlers = handlers
        self._pools = pools
        self._kinds = {
            pool: tuple(kind for kind, handler in handlers.items() if handler.pool == pool) for pool in pools
        }
        self._work: dict[tuple[int, int], tuple[str, asyncio.Task[None]]] = {}
        self._taken = Counter[str]()  # slots, by pool
        self._loops: list[asyncio.Task[None]] = []
        self._claiming: asyncio.Task[None] | None = None
        self._runs_turns = any(kind in TURNS for kind in handlers)
        self._stopping = False

    async def start(self) -> None:
        """Returns once this worker is known to be live, and has taken over what had been left behind."""
        if self._runs_turns:
            await self._db.write(_register, self.id)
            await self._sweep()
            self._loops.append(asyncio.create_task(self._sweep_forever()))
        self._claiming = asyncio.create_task(self._claim_forever())
        self._loops += [asyncio.create_task(loop()) for loop in (self._renew_forever, self._watch_ends)]

    async def stop(self, grace_s: float) -> None:
        """Claim nothing more, let work finish within `grace_s` seconds, and hand the rest back to the queue."""
        self._stopping = True
        self._db.bell.ring("runs")
        await asyncio.gather(*filter(None, [self._claiming]), return_exceptions=True)
        running = [task for _, task in self._work.values()]
        if running:
            await asyncio.wait(running, timeout=grace_s)
        for _, task in list(self._work.values()):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        if self._runs_turns:
            await self._db.write(_deregister, self.id)

    # -- claiming

    async def _claim_forever(self) -> None:
        with self._db.bell.listen("runs") as ear:
            pause = 0.0
            while not self._stopping:  # never canceled: what a claim took must come to a handler
                pause = await self._guarded(partial(self._claim_all, ear, pause), POLL_S)

    async def _claim_all(self, ear: Ear, pause: float) -> float:
        """Claim what there is room for, in the commit that brings it. Returns the seconds until the next look."""
        claimed, next_due = await self._db.write_along("runs", ear, pause, self._claim)
        for run, begun, error in claimed:
            task = asyncio.create_task(self._run(run, begun, error))
            self._work[run.id, run.attempt] = (run.kind, task)
            self._taken[self._handlers[run.kind].pool] += 1
            task.add_done_callback(lambda _, key=(run.id, run.attempt): self._free(key))
        if next_due is None:
            return POLL_S
        return min(POLL_S, max(0.0, (next_due - self._db.now()) / SECOND))

    def _claim(self, tx: Tx) -> tuple[list[Claimed], int | None]:
        # On the writer's thread. Slots that become free meanwhile do no harm, and nobody else takes any.
        runs, next_due = claim(tx, self.id, self._room())
        return [_begin(tx, run, self._handlers[run.kind].begin) for run in runs], next_due

    def _room(self) -> Room:
        """The kinds that there are free slots for, and how many, pool by pool; none for one that stops."""
        if self._stopping:
            return []
        free = {pool: self._pools[pool] - self._taken[pool] for pool in self._kinds}
        return [(kinds, free[pool]) for pool, kinds in self._kinds.items() if free[pool] > 0]

    def _free(self, key: tuple[int, int]) -> None:
        kind, _ = self._work.pop(key)
        pool = self._handlers[kind].pool
        self._taken[pool] -= 1
        if self._taken[pool] == self._pools[pool] - 1:
            self._db.bell.ring("runs")  # it was full, so more may be due than was claimed

    # -- working

    async def _run(self, run: Run, begun: Any, error: Exception | None) -> None:
        try:
            if error is not None:
                raise error
            with about(run.task_id, run.params.get("job")):
                await self._handlers[run.kind].run(begun)
        except LeaseLost:
            log.info("run %s (%s) attempt %s is over: another has it, or it has ended", run.id, run.kind, run.attempt)
        except asyncio.CancelledError:
            if self._stopping:
                await self._db.write(queue.release, run, counts=False)
        except TryAgain as again:
            log.info("run %s (%s) attempt %s comes again in %.1f s", run.id, _named(run), run.attempt, again.after_s)
            await self._give_back(run, again.after_s, str(again))
        except Exception:
            error_id = secrets.token_hex(4)
            log.exception("run %s (%s) attempt %s failed, error %s", run.id, _named(run), run.attempt, error_id)
            await self._give_back(run, backoff(run.tries), f"internal error {error_id}")

    async def _give_back(self, run: Run, after_s: float, why: str) -> None:
        """Back to the queue, or to its end: a turn has a number of tries, what follows from it has none."""
        try:
            await self._db.write(_after_failure, run, self._db.now() + int(after_s * SECOND), why)
        except LeaseLost:
            log.info("run %s (%s) attempt %s was over when it failed", run.id, run.kind, run.attempt)
        except StorageUnavailable as error:
            log.warning("run %s (%s) waits until its lease is out: %s", run.id, run.kind, error)
        except Exception:
            error_id = secrets.token_hex(4)
            log.exception("run %s (%s) waits until its lease is out, error %s", run.id, run.kind, error_id)

    # -- leases

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(self._db.limits.lease / SECOND / 3)
            await self._guarded(self._renew, None)

    async def _renew(self) -> None:
        working = set(self._work)
        renewed = self._db.write(_beat, self.id, working) if self._runs_turns else self._db.write(queue.renew, working)
        self._drop(working - await renewed)

    async def _watch_ends(self) -> None:
        """What was canceled, here or in another process, is stopped as soon as it is heard of."""
        with self._db.bell.listen("ended") as ear:
            while True:
                await ear.wait()
                await self._guarded(self._look_for_ends, None)

    async def _look_for_ends(self) -> None:
        working = set(self._work)
        self._drop(working - await self._db.read(queue.held, self.id))

    def _drop(self, lost: set[tuple[int, int]]) -> None:
        for key in lost & set(self._work):
            self._work[key][1].cancel()

    # -- taking over

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_S, self._db.limits.lease / SECOND / 3))
            await self._guarded(self._sweep, None)

    async def _sweep(self) -> None:
        await self._renew()  # what works here is not left behind, however long nothing could be written
        while notes := await self._sweep_some():
            for note in notes:
                log.warning(note)

    async def _sweep_some(self) -> list[str]:
        """One that cannot be taken over or ended holds up no other."""
        try:
            return await self._db.write(sweep, self.id)
        except StorageUnavailable:
            raise
        except Exception:
            log.exception("worker %s sweeps one by one, error %s", self.id, secrets.token_hex(4))
        for run_id in await self._db.read(left_behind):
            try:
                log.warning(await self._db.write(sweep_one, run_id))
            except StorageUnavailable:
                raise
            except Exception:
                log.exception("run %s cannot be taken over, error %s", run_id, secrets.token_hex(4))
        return []

    async def _guarded(self, step: Callable[[], Awaitable[T]], otherwise: T) -> T:
        """A loop outlives a storage that cannot be used for a while, and whatever else goes wrong in one of its rounds."""
        try:
            return await step()
        except StorageUnavailable as error:
            log.warning("worker %s waits for the storage: %s", self.id, error)
        except Exception:
            log.exception("worker %s goes on after error %s", self.id, secrets.token_hex(4))
        await asyncio.sleep(POLL_S)
        return otherwise


def _named(run: Run) -> str:
    """Its kind, and the ids of what it is about."""
    return " ".join(filter(None, (run.kind, run.task_id, run.params.get("job"))))


def backoff(tries: int) -> float:
    """Seconds to wait after the `tries`-th failure: doubling, bounded, with a jitter of a fifth."""
    first, longest = BACKOFF_S
    return min(first * 2 ** (tries - 1), longest) * random.uniform(1 - JITTER, 1 + JITTER)


def claim(tx: Tx, worker: str, room: Room) -> tuple[list[Run], int | None]:
    """Runs that are due, as many as there is room for, and when the next one will be."""
    asked = tuple(kind for kinds, _ in room for kind in kinds)
    due = queue.due(tx, asked)
    runs: list[Run] = []
    claimed: list[str] = []
    for kinds, free in room:
        for kind in kinds:
            if free and due.get(kind, tx.now + 1) <= tx.now:
                claimed.append(kind)
                taken = queue.claim(tx, worker, kind, free)
                free -= len(taken)
                runs += taken
    later = due | queue.due(tx, tuple(claimed))  # of the other kinds it is known
    return runs, min((at for at in later.values() if at > tx.now), default=None)


def _begin(tx: Tx, run: Run, begin: Begin) -> Claimed:
    """What cannot begin is claimed all the same, and fails as a run does: by itself."""
    try:
        with tx.apart():
            return Claimed(run, begin(tx, run), None)
    except StorageUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - raised again where the run is worked on
        return Claimed(run, None, error)


def _after_failure(tx: Tx, run: Run, due_at: int, why: str) -> None:
    tries = queue.tries(tx, run)
    if run.task_id:  # a provider's error may quote what was said
        why = ceilings.keep(tasks.ceiling_of(tx, run.task_id), why, tx.redact)
    if run.kind in TURNS and tries >= tx.limits.max_attempts:
        terminal.settle(tx, run, _exhausted(tries, why))
    else:
        queue.release(tx, run, due_at=due_at, error=why)


def _exhausted(tries: int, why: str) -> Outcome:
    return Outcome(
        "failed",
        written=False,
        reason="ATTEMPTS_EXHAUSTED",
        detail=f"It was tried {tries} times without getting further ({why}).",
    )


def sweep(tx: Tx, worker: str) -> list[str]:
    """Take over runs whose lease has run out, and end turns whose last one was too long ago.

    Returns a line for the log for each, of as many as fit into one transaction.
    """
    tx.x("update workers set swept_at = :now where id = :id", now=tx.now, id=worker)
    return [_sweep_row(tx, row) for row in _left(tx)]


def left_behind(tx: Tx) -> list[int]:
    """The runs that a sweep would take over or end now."""
    return [row["id"] for row in _left(tx)]


def sweep_one(tx: Tx, run_id: int) -> str:
    """The same for one run. Returns a line for the log."""
    return next(
        (_sweep_row(tx, row) for row in _left(tx) if row["id"] == run_id), f"run {run_id} was taken over meanwhile"
    )


def _left(tx: Tx) -> list[Row]:
    long_ago = tx.now - tx.limits.resume_max_age
    return queue.expired(tx) + [row for kind in TURNS for row in queue.given_back(tx, kind, long_ago)]


def _sweep_row(tx: Tx, row: Row) -> str:
    return _take_over(tx, row) if row["state"] == "running" else _interrupt(tx, Run.of(row))


def _interrupt(tx: Tx, run: Run) -> str:
    detail = "It was interrupted too long ago to be taken up again; a retry runs it anew."
    outcome = Outcome("failed", reason="INTERRUPTED", detail=detail, written=False)
    terminal.settle_expired(tx, run.id, run.task_id or "", outcome)
    return f"run {run.id} ({run.kind} {run.task_id or run.params}) was interrupted long ago and has been ended"


def _take_over(tx: Tx, row: Row) -> str:
    run = Run.of(row)
    tallies.add(tx, "lost_leases", run.kind)
    if run.kind in TURNS and tx.now - row["lease_until"] > tx.limits.resume_max_age:
        return _interrupt(tx, run)
    if run.kind in TURNS and run.tries >= tx.limits.max_attempts:
        outcome = _exhausted(run.tries, "its worker stopped each time")
        terminal.settle_expired(tx, run.id, run.task_id or "", outcome)
        return f"run {run.id} ({run.kind} {run.task_id or run.params}) lost its worker {run.tries} times and has been failed"
    queue.release(tx, run, error="its worker stopped")
    return f"run {run.id} ({run.kind} {run.task_id or run.params}) attempt {run.attempt} lost its worker and is queued again"


def _register(tx: Tx, worker: str) -> None:
    tx.x(
        "insert into workers (id, host, pid, started_at, beat_at, swept_at) values (:id, :host, :pid, :now, :now, :now)",
        id=worker,
        host=socket.gethostname(),
        pid=os.getpid(),
        now=tx.now,
    )
    tx.x("delete from workers where beat_at < :old", old=tx.now - 24 * 3600 * SECOND)


def _beat(tx: Tx, worker: str, working: set[tuple[int, int]]) -> set[tuple[int, int]]:
    if not tx.x("update workers set beat_at = :now where id = :id", now=tx.now, id=worker):
        _register(tx, worker)  # it was away for so long that another took it for gone
    return queue.renew(tx, working)


def _deregister(tx: Tx, worker: str) -> None:
    tx.x("delete from workers where id = :id", id=worker)


def live(tx: Tx) -> list[dict[str, Any]]:
    """The workers that are known, each with `live`: heard from within the time that the limits give it.

    One of this host whose process is gone is not live as soon as it has missed a few sweeps: a fresh one may be in a
    container, which has this host's name and other processes. What has been silent for an hour is left out.
    """
    rows = tx.q(
        "select *, max(beat_at, swept_at) as heard_at from workers where max(beat_at, swept_at) >= :shown order by started_at",
        shown=tx.now - SHOWN_S * SECOND,
    )
    return [{**row, "live": _is_live(tx, row)} for row in map(dict, rows)]


def _is_live(tx: Tx, row: dict[str, Any]) -> bool:
    silent = tx.now - row["heard_at"]
    may_be_gone = silent > 3 * SWEEP_S * SECOND and row["host"] == socket.gethostname()
    return silent <= tx.limits.worker_ttl and not (may_be_gone and not _runs(row["pid"]))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    return True
