"""A walk: everything that can happen to turns, jobs and follow-ups, in an order that chance decides, through two processes.

It keeps the books that the walked registry is then held to: which job was told by which turn, and which moves were seen.
"""

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from background import acceptance, batches, delivery, job_rows, jobs, journal, queue, sessions, tasks, terminal, worker
from background.database import Database, Tx
from background.errors import Fault, LeaseLost
from background.job_rows import Job
from background.limits import SECOND
from background.queue import Run
from background.tasks import Task
from tests.background.asking import question
from tests.background.factories import OWNER, WORKER, Turn, heard_of, message, outcome, spec
from tests.background.story import rows
from tests.support.clock import Clock

T = TypeVar("T")

CHATS = ("one", "two")
FOLLOW_UPS = ("dispatch", "report", "join", "nudge", "expire")
MACHINES = {"tasks": "state", "runs": "state", "jobs": "status", "deliveries": "state"}


def watch(tx: Tx) -> None:
    """From now on every change of a state is written down in `moves`."""
    tx.x("create table moves (machine text, before text, after text)")
    for table, column in MACHINES.items():
        tx.x(
            f"create trigger moved_{table} after update of {column} on {table} when old.{column} <> new.{column} "
            f"begin insert into moves values ('{table}', old.{column}, new.{column}); end"
        )


@dataclass
class Walk:
    """Where the walk stands: `held` are the turns at work, as their workers know them."""

    homes: tuple[Database, Database]
    clock: Clock
    chance: random.Random
    held: list[Turn] = field(default_factory=list)
    told: Counter[tuple[str, int]] = field(default_factory=Counter)
    let_go: set[str] = field(default_factory=set)  # jobs that a turn had taken up when its user canceled it
    number: int = 0

    @property
    def db(self) -> Database:
        """One of the two processes, whichever."""
        return self.chance.choice(self.homes)

    async def step(self) -> None:
        await heard_of(self.homes[0])
        (move,) = self.chance.choices(list(self.moves), list(self.moves.values()))
        await move()

    @property
    def moves(self) -> dict[Callable[[], Awaitable[object]], int]:
        """What can happen, and how often it does: work comes to its end about as fast as it comes in."""
        coming = {self.submit: 3, self.spawn: 2, self.spawn_from_outside: 1, self.retry: 1, self.answer: 2}
        going = {self.begin: 8, self.follow_up: 14, self.settle: 6, self.checkpoint: 2, self.fold: 3, self.park: 2}
        wrong = {self.cancel_task: 1, self.cancel_job: 1, self.crash: 1, self.hand_back: 1, self.wait: 2}
        return {**coming, **going, **wrong}

    # -- what users, models and plugins do

    async def submit(self) -> None:
        await self.db.write(acceptance.accept, message(session_id=self.chance.choice(CHATS)))

    async def spawn(self) -> None:
        turn = self._pick([turn for turn in self.held if turn.task.origin != "background"])
        if turn and await self._holds(turn):
            await self.db.write(self._send, turn.task.session, turn.task.id, False)

    async def spawn_from_outside(self) -> None:
        session = await self.db.write(sessions.open_session, OWNER, self.chance.choice(CHATS))
        self.number += 1
        await self.db.write(self._send, session.uid, f"batch-{self.number}", True)

    def _send(self, tx: Tx, uid: str, batch: str, closed: bool) -> None:
        session = sessions.by_uid(tx, uid)
        size = self.chance.randrange(1, 4)
        specs = [(f"{batch}-{self.chance.random()}", spec()) for _ in range(size)]
        jobs.spawn(tx, session, batch, specs, closed=closed)

    async def cancel_task(self) -> None:
        found = await rows(self.db, "select id from tasks where ended_at is null order by rowid")
        if task_id := self._pick([row["id"] for row in found]):
            task = await self.db.read(tasks.by_id, task_id)
            theirs = await self.db.read(self._waiting_for, task)
            if await self.db.write(terminal.cancel_task, task, "user"):
                self.let_go.update(theirs)

    def _waiting_for(self, tx: Tx, task: Task) -> list[str]:
        """The jobs that wait for a turn: it has taken them up, or is there to do so."""
        nudge = task.origin == "background-resume"
        rest = [row["job_id"] for row in delivery.waiting(tx, task.session, fired_only=True)] if nudge else []
        return [*delivery.attached_to(tx, task.id), *rest]

    async def cancel_job(self) -> None:
        if job := await self._some_job("completed_at is null"):
            await self.db.write(terminal.cancel_job, job, self.chance.choice(["user", "user", "agent"]))

    async def retry(self) -> None:
        if job := await self._some_job("completed_at is not null"):
            try:
                await self.db.write(jobs.retry, OWNER, job.id)
            except Fault as fault:
                assert job.delivery == "attached", fault

    async def answer(self) -> bool:
        """A question is answered, unless its time is over; then it is the deadline's."""
        found = await rows(
            self.db, "select task_id, deadline from questions where answered_at is null order by task_id"
        )
        asked = self._pick(found)
        if asked is None:
            return False
        try:
            await self.db.write(acceptance.accept, message(task_id=asked["task_id"]))
        except Fault:
            assert asked["deadline"] <= self.clock()
            return False
        return True

    async def _some_job(self, where: str) -> Job | None:
        found = await rows(self.db, f"select id from jobs where {where} order by rowid")
        job_id = self._pick([row["id"] for row in found])
        return await self.db.read(job_rows.by_id, job_id) if job_id else None

    # -- what workers do

    async def begin(self) -> bool:
        """The next turn or job begins, or goes on, and takes up what waits for it."""
        kind = self.chance.choice(worker.TURNS)
        return await self._begin(kind)

    async def _begin(self, kind: str) -> bool:
        turns = await self.db.write(lambda tx: [self._begun(tx, run) for run in queue.claim(tx, WORKER, kind, 1)])
        self.held += turns
        return bool(turns)

    def _begun(self, tx: Tx, run: Run) -> Turn:
        task, begins = tasks.begin(tx, run)
        if begins and task.origin != "background":
            self._take_up(tx, task)
        return Turn(task, run)

    def _take_up(self, tx: Tx, task: Task) -> bool:
        nudge = task.origin == "background-resume"
        found = delivery.waiting(tx, task.session, fired_only=nudge)
        return bool([row for row in found if delivery.attach(tx, task.id, row["job_id"])])

    async def checkpoint(self) -> None:
        if turn := self._pick(self.held):
            try:
                await self.db.write(tasks.checkpoint, turn.run, f"model:{self.chance.random()}", "[]")
            except LeaseLost:
                self.held.remove(turn)
                assert not await self._holds(turn)

    async def park(self) -> None:
        """A turn at work asks something, and its worker lets go of it."""
        if turn := self._pick(self.held):
            self.held.remove(turn)
            self.number += 1
            asks = question(key=f"step-{self.number}", kind=self.chance.choice(["question", "auth"]))
            deadline = self.chance.choice([None, self.clock() + 120 * SECOND])
            await self.db.write(terminal.park, turn.run, asks, deadline=deadline)

    async def _holds(self, turn: Turn) -> bool:
        return bool(
            await rows(
                self.db,
                "select 1 from runs where id = :id and attempt = :attempt and state = 'running'",
                id=turn.run.id,
                attempt=turn.run.attempt,
            )
        )

    async def fold(self) -> None:
        turn = self._pick([turn for turn in self.held if turn.task.origin == "user"])
        if turn and await self._holds(turn):
            await self.db.write(self._fold, turn)

    def _fold(self, tx: Tx, turn: Turn) -> None:
        waiting = tasks.waiting_nudges(tx, turn.task.session)
        found = delivery.waiting(tx, turn.task.session, fired_only=True) if waiting else []
        if found:
            for row in found:
                delivery.attach(tx, turn.task.id, row["job_id"])
            for nudge in waiting:
                terminal.fold(tx, nudge, turn.task)

    async def settle(self, state: str | None = None) -> None:
        """A turn comes to its end; what it had taken up is told if it completed."""
        turn = self._pick(self.held)
        if turn is None:
            return
        self.held.remove(turn)
        attached = await rows(
            self.db,
            "select job_id, attempt from deliveries where task_id = :id and state = 'attached'",
            id=turn.task.id,
        )
        state = state or self.chance.choice(
            ["completed", "failed"] if attached else ["completed", "completed", "failed"]
        )
        if await self.db.write(terminal.settle, turn.run, outcome(state)) and state == "completed":
            self.told.update((row["job_id"], row["attempt"]) for row in attached)

    async def follow_up(self) -> bool:
        for kind in self.chance.sample(FOLLOW_UPS, len(FOLLOW_UPS)):
            if await self.db.write(self._follow_up, kind):
                return True
        return False

    def _follow_up(self, tx: Tx, kind: str) -> bool:
        works = {"dispatch": self._dispatch, "report": self._report, "join": self._join, "nudge": self._nudge}
        works["expire"] = self._expire
        runs = queue.claim(tx, WORKER, kind, 1)
        for run in runs:
            works[kind](tx, run)
            queue.finish(tx, run)
        return bool(runs)

    def _dispatch(self, tx: Tx, run: Run) -> None:
        job, attempt = job_rows.by_id(tx, run.params["job"]), run.params["attempt"]
        if not job.ended and job.attempts == attempt:
            post = message(session_id=f"background:{job.id}", origin="background", cause=job.id)
            acceptance.accept(tx, post)

    def _report(self, tx: Tx, run: Run) -> None:
        jobs.report_done(tx, run.params["job"], run.params["attempt"])

    def _join(self, tx: Tx, run: Run) -> None:
        batches.past_deadline(tx, run.params["batch"])

    def _expire(self, tx: Tx, run: Run) -> None:
        terminal.expire(tx, run.params["task"], run.params["revision"])

    def _nudge(self, tx: Tx, run: Run) -> None:
        told = run.params.get("jobs") or batches.generation_of(tx, run.params["batch"], run.params["generation"])
        job = job_rows.by_id(tx, told[0])
        nudge = message(
            session_id=job.session_id, message_id=f"nudge.{run.id}", origin="background-resume", cause=job.id
        )
        acceptance.accept(tx, nudge)

    # -- what goes wrong

    async def crash(self) -> None:
        """A worker is gone, with what it held; its leases run out."""
        if turn := self._pick(self.held):
            self.held.remove(turn)
            await self.wait(40)

    async def hand_back(self) -> None:
        if turn := self._pick(self.held):
            self.held.remove(turn)
            await self.db.write(queue.release, turn.run, counts=False)

    async def wait(self, seconds: float | None = None) -> None:
        """Time passes; those at work renew their leases, and a sweep looks for those that are gone."""
        self.clock.advance(self.chance.uniform(0, 400) if seconds is None else seconds)
        await heard_of(self.homes[0])
        await self.db.write(queue.renew, [(turn.run.id, turn.run.attempt) for turn in self.held])
        await self.db.write(worker.sweep, WORKER)
        await self.db.write(journal.project)

    # -- coming to rest

    async def rest(self) -> None:
        """All that is left is worked off, and everything goes well. What is due only in some hours is not waited for."""
        while self.held or await self._busy():
            await self.wait(60)
            while (
                await self.follow_up() or await self.answer() or await self._begin("job") or await self._begin("turn")
            ):
                pass
            while self.held:
                await self.settle("completed")
        while await self.db.write(journal.project):
            pass

    async def _busy(self) -> bool:
        soon = self.clock() + 2 * 3600 * SECOND
        return bool(
            await rows(self.db, "select 1 from runs where ended_at is null and due_at < :soon limit 1", soon=soon)
        )

    def _pick(self, found: list[T]) -> T | None:
        return self.chance.choice(found) if found else None
