"""Two at once: hundreds of rounds through two processes, and each time one of them was first and everything agrees."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from background import delivery, job_rows, jobs, queue, tasks, terminal
from background.database import Database, Tx
from background.errors import Fault, LeaseLost
from background.states import TASK_ENDS
from background.tasks import Task
from tests.background.factories import (
    OWNER,
    Out,
    Turn,
    at_work,
    ended_job,
    fresh,
    nudged,
    nudges,
    outcome,
    running,
    sent_by_api,
    settled,
    submitted,
    take,
)
from tests.background.story import opened, rows, story, value
from tests.support.clock import Clock

ROUNDS = 120
Attempt = Callable[[], Awaitable[Any]]


async def first(chance: random.Random, *attempts: Attempt) -> list[int]:
    """Starts all at one moment, in a random order, and says which of them said that they were first."""
    order = list(range(len(attempts)))
    chance.shuffle(order)

    async def attempt(number: int) -> bool:
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        try:
            return bool(await attempts[number]())
        except (Fault, LeaseLost):
            return False

    won = await asyncio.gather(*map(attempt, order))
    return sorted(number for number, was_first in zip(order, won, strict=True) if was_first)


def cancel_job(tx: Tx, job_id: str) -> bool:
    """As the door does it: the job is looked up in the same transaction. Whether it was this that ended it."""
    job = job_rows.get(tx, OWNER, job_id)
    return terminal.cancel_job(tx, job, "user").status == "canceled"


@story
async def test_a_job_has_one_end_whoever_brings_it_about(db: Database, clock: Clock) -> None:
    """S56, A01: settle, failure, cancel of the task, cancel of the job and the sweep, all at once."""
    chance = random.Random(1)
    ended_as: Counter[str] = Counter()
    async with opened(db.path, clock) as other:
        for _ in range(ROUNDS):
            (job,) = await sent_by_api(db)
            out = await at_work(db, job)
            run, task = out.turn.run, out.turn.task
            won = await first(
                chance,
                lambda run=run: db.write(terminal.settle, run, outcome("completed")),
                lambda run=run: other.write(terminal.settle, run, outcome("failed")),
                lambda task=task: other.write(terminal.cancel_task, task, "user"),
                lambda job=job: db.write(cancel_job, job.id),
                lambda run=run, task=task: other.write(terminal.settle_expired, run.id, task.id, outcome("failed")),
            )
            assert len(won) == 1
            ended_as[await _agree(db, out)] += 1
            assert (await fresh(db, job)).status == ["completed", "failed", "canceled", "canceled", "failed"][won[0]]
    assert len(ended_as) == 3, "the rounds were all alike, and show nothing"


async def _agree(db: Database, out: Out) -> str:
    """Task, run, job, member, result, delivery, report run and event say the same, each once. Returns the end."""
    (row,) = await rows(
        db,
        "select t.state as task, r.state as run, j.status as job, m.status as member, d.state as delivery, "
        "(select count(*) from results where task_id = t.id) as results, "
        "(select count(*) from runs where key = 'report:' || j.id || ':1') as reports, "
        "(select count(*) from events where name = 'background.completed' and "
        "unsealed('events.data', session || '/' || uid, data) like '%' || j.id || '%') as told, "
        "(select max(revision) from revisions where task_id = t.id) - t.revision as ahead "
        "from tasks t join runs r on r.task_id = t.id join jobs j on j.task_id = t.id "
        "join members m on m.job_id = j.id join deliveries d on d.job_id = j.id where t.id = :id",
        id=out.turn.task.id,
    )
    end = row["task"]
    assert row == {
        "task": end,
        "run": TASK_ENDS[end],
        "job": end,
        "member": end,
        "delivery": "pending",
        "results": 1,
        "reports": 1,
        "told": 1,
        "ahead": 0,
    }
    return end


@story
async def test_a_confirmed_cancel_of_a_turn_that_goes_on_step_by_step_is_never_lost(db: Database, clock: Clock) -> None:
    """A01: canceled at a random step; what was confirmed stays, and the work learns of it at its next step."""
    chance = random.Random(2)
    async with opened(db.path, clock) as other:
        for number in range(ROUNDS):
            turn = await running(db, session_id=f"s{number}")
            steps = asyncio.create_task(_step_by_step(db, turn))
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            confirmed = await other.write(terminal.cancel_task, turn.task, "user")
            completed = await steps
            assert completed is not confirmed
            state = (await db.read(tasks.by_id, turn.task.id)).state
            assert state == ("canceled" if confirmed else "completed")


async def _step_by_step(db: Database, turn: Turn) -> bool:
    """Five steps and an end; whether it came to it."""
    try:
        for number in range(5):
            await db.write(tasks.checkpoint, turn.run, f"model:{number}", "[]")
    except LeaseLost:
        return False
    return await settled(db, turn)


def drain(tx: Tx, turn: Turn) -> list[str]:
    """As a turn does it when it begins and between its steps: fenced, looked up and attached in one transaction."""
    queue.fence(tx, turn.run)
    waiting = delivery.waiting(tx, turn.task.session, fired_only=False)
    return [row["job_id"] for row in waiting if delivery.attach(tx, turn.task.id, row["job_id"])]


def report(tx: Tx, job_id: str) -> None:
    queue.finish(tx, take(tx, "key", f"report:{job_id}:1"))
    jobs.report_done(tx, job_id, 1)


@story
async def test_a_drain_that_meets_an_end_misses_nothing_and_tells_nothing_twice(db: Database, clock: Clock) -> None:
    """Seen elsewhere: jobs that ended between the drain's look and its write were marked delivered and never told."""
    chance = random.Random(3)
    told: Counter[str] = Counter()
    ended: list[str] = []
    async with opened(db.path, clock) as other:
        for _ in range(40):
            outs = [await at_work(db, job) for job in await sent_by_api(db, "a", "b", "c")]
            turn = await running(db)

            async def end(out: Out) -> None:
                await settled(db, out.turn)
                await other.write(report, out.job.id)

            drains = [home.write(drain, turn) for home in (db, other, db) for _ in range(chance.randrange(1, 3))]
            work: list[Any] = [*map(end, outs), *drains, settled(other, turn)]
            chance.shuffle(work)
            for found in await asyncio.gather(*work, return_exceptions=True):
                assert not isinstance(found, Exception)
                told.update(found if isinstance(found, list) else [])
            ended += [out.job.id for out in outs]
        late = await running(db)
        told.update(await db.write(drain, late))
        await settled(db, late)
    assert told == Counter(ended)
    delivered = await rows(db, "select job_id from deliveries where state = 'delivered'")
    assert sorted(row["job_id"] for row in delivered) == sorted(ended)


@story
async def test_a_nudge_is_folded_or_begun_and_never_both(db: Database, clock: Clock) -> None:
    chance = random.Random(4)
    outcomes: Counter[str] = Counter()
    async with opened(db.path, clock) as other:
        for _ in range(40):
            await ended_job(db)
            turn = await running(db)
            nudge = await nudged(db, (await nudges(db))[-1])

            won = await first(
                chance,
                lambda turn=turn, nudge=nudge: _settle_and_begin_next(db, turn, nudge),
                lambda turn=turn, nudge=nudge: other.write(terminal.fold, nudge, turn.task),
            )
            assert len(won) == 1
            state = (await db.read(tasks.by_id, nudge.id)).state
            assert state == ["working", "completed"][won[0]]
            outcomes[state] += 1
            await db.write(terminal.cancel_task, await db.read(tasks.by_id, nudge.id), "user")
    assert len(outcomes) == 2


async def _settle_and_begin_next(db: Database, turn: Turn, nudge: Task) -> bool:
    """The turn ends, and the nudge behind it begins; whether it did."""

    def begin(tx: Tx) -> bool:
        run = next((run for run in queue.claim(tx, "w", "turn", 5) if run.task_id == nudge.id), None)
        return run is not None and tasks.begin(tx, run)[1]

    await settled(db, turn)
    return await db.write(begin)


@pytest.mark.parametrize("limit", [1, 7])
@story
async def test_a_lane_never_has_two_at_work(db: Database, clock: Clock, limit: int) -> None:
    """Turns of a session never overlap, with no lock object, through two processes that both claim."""
    at_work: Counter[str] = Counter()
    order: dict[str, list[int]] = {}
    for number in range(60):
        await submitted(db, session_id=f"s{number % 4}")

    async def work(home: Database) -> None:
        while await home.read(queue.due, ("turn",)):
            for run in await home.write(queue.claim, "w", "turn", limit):
                lane = str(run.lane)
                at_work[lane] += 1
                assert at_work[lane] == 1
                order.setdefault(lane, []).append(run.id)
                await home.write(tasks.begin, run)
                at_work[lane] -= 1
                await home.write(terminal.settle, run, outcome())

    async with opened(db.path, clock) as other:
        await asyncio.gather(work(db), work(other), work(db))
    while await db.read(queue.due, ("turn",)):
        await work(db)
    assert sorted(run for runs in order.values() for run in runs) == list(range(1, 61))
    assert all(runs == sorted(runs) for runs in order.values())
    assert await value(db, "select count(*) from runs where state <> 'done'") == 0
