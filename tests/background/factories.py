"""Things in a named state: `await running(db)`, `await ended_job(db, "failed")`, `await fan(db, 3)`.

All of it comes about by the transactions that the product makes, in its order; a post to ourselves is left out between
them, and what a model would have done is given.
"""

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from background import acceptance, batches, delivery, job_rows, jobs, queue, sessions, tasks, terminal
from background.acceptance import Incoming
from background.database import Database, Tx
from background.job_rows import Job
from background.jobs import Spec
from background.queue import Run
from background.sessions import Session
from background.tasks import Task
from background.terminal import Outcome

OWNER = "local"
SESSION = "s"
WORKER = "w"
ALL = 1000

_numbers = itertools.count(1)


def message(text: str = "hello", **differences: Any) -> Incoming:
    """A user's message to the session `s`, with an id of its own."""
    number = next(_numbers)
    sent = Incoming(
        owner=OWNER,
        session_id=SESSION,
        message_id=f"m-{number}",
        fingerprint=hashlib.sha256(text.encode()).hexdigest(),
        text=text,
        content={"messageId": f"m-{number}", "role": "ROLE_USER", "parts": [{"text": text}]},
    )
    return replace(sent, **differences)


def outcome(state: str = "completed", text: str = "The answer.", **differences: Any) -> Outcome:
    """An end of this state: an answer, a failed model with `text` as what there was, a cancel."""
    ends = {
        "completed": Outcome("completed", [artifact(text)] if text else [], excerpt=text, transcript="[]"),
        "failed": Outcome(
            "failed", partial=text or None, reason="MODEL_FAILED", detail="The model failed.", excerpt=text
        ),
        "canceled": Outcome("canceled", detail="Canceled by its user.", canceled_by="user"),
    }
    return replace(ends[state], **differences)


def artifact(text: str) -> dict[str, Any]:
    return {"artifactId": f"a-{next(_numbers)}", "parts": [{"text": text}]}


# -- workers


def _heard_of(tx: Tx, worker: str) -> None:
    tx.x(
        "insert into workers (id, host, pid, started_at, beat_at, swept_at) values (:id, 'here', 1, :now, :now, :now) "
        "on conflict (id) do update set beat_at = :now",
        id=worker,
        now=tx.now,
    )


async def heard_of(db: Database, worker: str = WORKER) -> None:
    """A worker has just given a sign of life."""
    await db.write(_heard_of, worker)


def take(tx: Tx, column: str, wanted: str, worker: str = WORKER) -> Run:
    """The due run whose `column` is `wanted`, claimed as a worker does; others that were due go back."""
    kind = tx.value(f"select kind from runs where {column} = :wanted and ended_at is null", wanted=wanted)
    found = None
    for run in queue.claim(tx, worker, kind, ALL):
        if tx.one(f"select 1 from runs where id = :id and {column} = :wanted", id=run.id, wanted=wanted):
            found = run
        else:
            queue.release(tx, run, counts=False)
    assert found is not None, f"no run with {column} {wanted} is due"
    return found


async def claimed(db: Database, key: str = "k", worker: str = WORKER, **more: Any) -> Run:
    """A run of no particular meaning, held by a worker."""

    def make(tx: Tx) -> Run:
        queue.enqueue(tx, "report", key, **more)
        return take(tx, "key", key, worker)

    return await db.write(make)


# -- turns


@dataclass(frozen=True)
class Turn:
    """A task that is at work, and the run that holds it."""

    task: Task
    run: Run


async def submitted(db: Database, text: str = "hello", **differences: Any) -> Task:
    """A task that waits for a worker."""
    await heard_of(db)
    return await db.write(_submit, message(text, **differences))


def _submit(tx: Tx, sent: Incoming) -> Task:
    return tasks.by_id(tx, acceptance.accept(tx, sent).task_id)


async def begun(db: Database, task: Task, worker: str = WORKER) -> Turn:
    """The task's run is claimed and it is at work."""

    def begin(tx: Tx) -> Turn:
        run = take(tx, "task_id", task.id, worker)
        return Turn(tasks.begin(tx, run)[0], run)

    return await db.write(begin)


async def running(db: Database, text: str = "hello", worker: str = WORKER, **differences: Any) -> Turn:
    """A chat turn at work."""
    return await begun(db, await submitted(db, text, **differences), worker)


async def settled(db: Database, turn: Turn, state: str = "completed", text: str = "The answer.", **more: Any) -> bool:
    """The turn comes to its end; whether it was first."""
    return await db.write(terminal.settle, turn.run, outcome(state, text, **more))


async def ended(db: Database, state: str = "completed", text: str = "The answer.", **differences: Any) -> Task:
    """A task that has ended so."""
    turn = await running(db, **differences)
    if state == "canceled":
        assert await db.write(terminal.cancel_task, turn.task, "user")
    else:
        assert await settled(db, turn, state, text)
    return await db.read(tasks.by_id, turn.task.id)


# -- jobs


@dataclass(frozen=True)
class Out:
    """A job that is at work: its row as it began, and its turn."""

    job: Job
    turn: Turn


def spec(description: str = "a look", prompt: str = "Look into it.") -> Spec:
    return Spec(description, prompt, "general", ("memory_recall",))


async def chat(db: Database, session_id: str = SESSION, owner: str = OWNER) -> Session:
    """A session that has had a word."""
    return await db.write(sessions.open_session, owner, session_id)


async def sent_out(db: Database, turn: Turn, *descriptions: str) -> list[Job]:
    """A turn sends jobs out; they are queued, in its batch."""
    session = await db.read(sessions.by_uid, turn.task.session)
    return await _spawned(db, session, turn.task.id, descriptions, closed=False)


async def sent_by_api(db: Database, *descriptions: str, session: Session | None = None) -> list[Job]:
    """Jobs from outside a turn: a batch that is closed at once."""
    found = session or await chat(db)
    return await _spawned(db, found, f"batch-{next(_numbers)}", descriptions or ("a look",), closed=True)


async def _spawned(
    db: Database, session: Session, batch: str, descriptions: Sequence[str], *, closed: bool
) -> list[Job]:
    specs = [(f"key-{next(_numbers)}", spec(description)) for description in descriptions]
    return await db.write(jobs.spawn, session, batch, specs, closed=closed)


async def dispatched(db: Database, job: Job) -> Task:
    """The job's post has been accepted: a task waits in its own background session."""
    await heard_of(db)

    def dispatch(tx: Tx) -> Task:
        run = take(tx, "key", f"dispatch:{job.id}:{job.attempts}")
        post = message(
            job.prompt,
            session_id=f"{sessions.BACKGROUND}{job.id}",
            message_id=f"{job.id}.{job.attempts}",
            origin="background",
            cause=job.id,
        )
        task = _submit(tx, post)
        queue.finish(tx, run)
        return task

    return await db.write(dispatch)


async def at_work(db: Database, job: Job, worker: str = WORKER) -> Out:
    """The job's turn has begun."""
    turn = await begun(db, await dispatched(db, job), worker)
    return Out(await db.read(job_rows.by_id, job.id), turn)


async def reported(db: Database, job: Job) -> Job:
    """The job's report run is done: it may be told now. Returns the job as it then is."""

    def report(tx: Tx) -> Job:
        run = take(tx, "key", f"report:{job.id}:{job.attempts}")
        queue.finish(tx, run)
        jobs.report_done(tx, job.id, job.attempts)
        return job_rows.by_id(tx, job.id)

    return await db.write(report)


async def brought_to_end(db: Database, job: Job, state: str = "completed", text: str = "The report.") -> Job:
    """A queued job is dispatched, works, ends so, and may be told."""
    out = await at_work(db, job)
    if state == "canceled":
        await db.write(terminal.cancel_job, out.job, "user")
    else:
        assert await settled(db, out.turn, state, text)
    return await reported(db, job)


async def running_job(db: Database) -> Out:
    """A lone job at work."""
    (job,) = await sent_by_api(db)
    return await at_work(db, job)


async def ended_job(db: Database, state: str = "completed", text: str = "The report.") -> Job:
    """A lone job that has ended so and may be told; its nudge waits in the queue, unless its user canceled it."""
    (job,) = await sent_by_api(db)
    return await brought_to_end(db, job, state, text)


@dataclass(frozen=True)
class Fan:
    """A turn that has sent jobs out, and these, all at work."""

    turn: Turn
    outs: list[Out]

    @property
    def batch(self) -> str:
        return self.turn.task.id


async def fan(db: Database, size: int, *, closed: bool = True) -> Fan:
    """A turn has sent out `size` jobs; unless `closed` is False it has ended since."""
    turn = await running(db)
    sent = await sent_out(db, turn, *(f"look {number}" for number in range(size)))
    outs = [await at_work(db, job) for job in sent]
    if closed:
        assert await settled(db, turn)
    return Fan(turn, outs)


async def ends(db: Database, out: Out, state: str = "completed", text: str = "The report.") -> Job:
    """A job at work ends so, and may be told."""
    assert await settled(db, out.turn, state, text)
    return await reported(db, out.job)


# -- coming back


def ids(*outs: Out) -> list[str]:
    """The jobs' ids, in order."""
    return sorted(out.job.id for out in outs)


async def told_by(db: Database, key: str) -> list[str]:
    """The jobs that a nudge of this key tells of, in the order of their ids."""
    batch, _, generation = key.removeprefix("nudge:").rpartition(":")
    return await db.read(batches.generation_of, batch, int(generation))


async def counted(db: Database, sent: Fan) -> list[dict[str, int]]:
    """What each join of a batch counted."""
    _, _, joins = await db.read(batches.get, OWNER, sent.batch)
    return [join["counts"] for join in joins]


async def nudges(db: Database) -> list[str]:
    """The keys of nudges that wait in the queue, due or not, oldest first."""

    def keys(tx: Tx) -> list[str]:
        found = tx.q("select key from runs where kind = 'nudge' and ended_at is null order by id")
        return [row["key"] for row in found]

    return await db.read(keys)


async def nudged(db: Database, key: str) -> Task:
    """The nudge of this key has been posted: its task waits in the origin session."""
    await heard_of(db)

    def post(tx: Tx) -> Task:
        run = take(tx, "key", key)
        told = run.params.get("jobs") or batches.generation_of(tx, run.params["batch"], run.params["generation"])
        session = sessions.by_uid(tx, job_rows.by_id(tx, told[0]).session)
        task = _submit(
            tx,
            message(
                "Some have ended.",
                session_id=session.id,
                message_id=f"nudge.{key}",
                origin="background-resume",
                cause=told[0],
            ),
        )
        if queue.finish(tx, run) and "generation" in run.params:
            batches.nudged(tx, run.params["batch"], run.params["generation"], task.id)
        return task

    return await db.write(post)


async def taken_up(db: Database, turn: Turn) -> list[str]:
    """A turn takes up what may be told to it, as its beginning does; the ids, in order of completion."""

    def attach(tx: Tx) -> list[str]:
        nudge = turn.task.origin == "background-resume"
        waiting = delivery.waiting(tx, turn.task.session, fired_only=nudge)
        return [row["job_id"] for row in waiting if delivery.attach(tx, turn.task.id, row["job_id"])]

    return await db.write(attach)


async def briefing(db: Database, key: str) -> tuple[Turn, list[str]]:
    """The turn that a nudge starts, at work, and the jobs that it has taken up."""
    turn = await begun(db, await nudged(db, key))
    return turn, await taken_up(db, turn)


async def fresh(db: Database, job: Job) -> Job:
    """The job as it is now."""
    return await db.read(job_rows.by_id, job.id)
