"""The worker: takes what there is room for, keeps what it works on, gives back what it cannot finish, takes over what was left."""

import asyncio
import logging

import pytest

from background import job_rows, queue, tasks, terminal, worker
from background.database import Database, Tx
from background.errors import LeaseLost, TryAgain
from background.limits import MINUTE, SECOND
from background.queue import Run
from background.worker import Handler, Worker
from tests.background.factories import (
    heard_of,
    outcome,
    running_job,
    submitted,
)
from tests.background.story import comes_true, opened, rows, story, until, value, within
from tests.background.work import Work, ended, next_try, put, states, works
from tests.support.clock import Clock

DAY = 24 * 3600


# -- claiming


@story
async def test_what_is_put_in_is_worked_on_at_once(db: Database) -> None:
    work = Work(db)
    async with works(db, work), asyncio.timeout(0.9):  # sooner than it would look by itself
        await put(db, "a")
        await until(lambda: len(work.done) == 1)


@story
async def test_what_was_put_in_by_another_process_is_worked_on(db: Database, clock: Clock) -> None:
    work = Work(db)
    async with works(db, work), opened(db.path, clock) as other:
        await put(other, "a")
        await until(lambda: len(work.done) == 1)


@story
async def test_only_kinds_with_a_handler_are_taken(db: Database) -> None:
    work = Work(db)
    await put(db, "nudge", kind="nudge")
    await put(db, "report")
    async with works(db, work):
        await ended(db)
    assert [run.kind for run in work.began] == ["report"]
    assert await states(db) == ["queued", "done"]


@story
async def test_a_pool_is_never_exceeded_by_the_kinds_that_share_it(db: Database) -> None:
    work = Work(db, gated=True)
    for kind in ("report", "index", "nudge"):
        await put(db, *(f"{kind} {number}" for number in range(5)), kind=kind)
    async with works(db, work, "report", "index", "nudge", slots=4):
        await until(lambda: work.at_once == 4)
        assert await value(db, "select count(*) from runs where state = 'running'") == 4
        work.gate.set()
        await ended(db, 15)
    assert work.most_at_once == 4


@story
async def test_one_pool_that_is_full_holds_no_other_up(db: Database) -> None:
    """Chat turns never wait behind jobs, nor follow-ups behind turns."""
    slow, quick = Work(db, gated=True), Work(db)
    handlers = {"index": Handler(slow, "slow"), "report": Handler(quick, "quick")}
    await put(db, "i1", "i2", "i3", kind="index")
    at_work = Worker(db, handlers, {"slow": 1, "quick": 1})
    await at_work.start()
    await put(db, "r1", "r2", "r3")
    await until(lambda: len(quick.done) == 3)
    assert len(slow.began) == 1
    slow.gate.set()
    await at_work.stop(5)


@story
async def test_a_place_that_falls_free_is_taken_by_whoever_waited_longest(db: Database) -> None:
    work = Work(db)
    await put(db, *(f"k{number}" for number in range(6)))
    async with works(db, work, slots=1):
        await ended(db, 6)
    assert [run.id for run in work.began] == sorted(run.id for run in work.began)


# -- a handler that cannot


@story
async def test_a_handler_that_asks_for_later_gets_it_then(db: Database, clock: Clock) -> None:
    tries: list[int] = []

    async def later(run: Run) -> None:
        tries.append(run.tries)
        if len(tries) == 1:
            raise TryAgain(60, "the store is busy")
        await db.write(queue.finish, run)

    await put(db, "k")
    async with works(db, later):
        await comes_true(db, "select last_error is not null from runs")
        (row,) = await rows(db, "select *, unsealed('runs.last_error', key, last_error) as why from runs")
        assert (row["due_at"], row["why"], row["worker"]) == (clock() + MINUTE, "the store is busy", None)
        assert await next_try(db, clock) == 60
        await ended(db)
    assert tries == [1, 2]


@story
async def test_a_follow_up_that_breaks_is_tried_for_ever_with_growing_pauses(db: Database, clock: Clock) -> None:
    async def breaks(run: Run) -> None:
        raise ValueError("the store is gone")

    await put(db, "k")
    async with works(db, breaks):
        pauses = [await next_try(db, clock) for _ in range(12)]
    assert all(2**n * 0.5 * 0.8 <= pause <= min(60, 2**n * 0.5) * 1.2 for n, pause in enumerate(pauses[:7]))
    assert all(60 * 0.8 <= pause <= 60 * 1.2 for pause in pauses[7:])
    assert await value(db, "select ended_at is null from runs")


@story
async def test_what_broke_is_logged_with_an_id_and_only_the_id_is_stored(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(run: Run) -> None:
        raise ValueError("secret: x")

    await put(db, "k")
    async with works(db, breaks):
        await comes_true(db, "select last_error is not null from runs")
    stored = await value(db, "select unsealed('runs.last_error', key, last_error) from runs")
    assert "secret: x" in caplog.text
    assert "secret" not in stored
    assert stored.rpartition(" ")[2] in caplog.text


@pytest.mark.parametrize("kind", ["turn", "job"])
@within(max_attempts=3)
async def test_a_turn_that_breaks_every_time_fails_as_exhausted(db: Database, clock: Clock, kind: str) -> None:
    """S07: what ends so is an end like any other, and a job's is told."""
    tries: list[int] = []

    async def breaks(run: Run) -> None:
        await db.write(tasks.begin, run)
        tries.append(run.tries)
        raise ValueError("always")

    task = await submitted(db) if kind == "turn" else (await at_work_again(db))
    async with works(db, breaks, "turn", "job"):
        for _ in range(2):
            await next_try(db, clock)
        await comes_true(db, "select ended_at is not null from tasks")
    row = (
        await rows(
            db,
            "select state, reason, unsealed('tasks.detail', id, detail) as detail from tasks where id = :id",
            id=task.id,
        )
    )[0]
    assert (row["state"], row["reason"]) == ("failed", "ATTEMPTS_EXHAUSTED")
    assert "3 times" in row["detail"]
    assert tries == [1, 2, 3]
    if task.cause:
        job = await db.read(job_rows.by_id, task.cause)
        assert (job.status, job.reason, job.delivery) == ("failed", "ATTEMPTS_EXHAUSTED", "pending")


async def at_work_again(db: Database) -> tasks.Task:
    """A job's task that was at work once, and was handed back cleanly."""
    out = await running_job(db)
    await db.write(queue.release, out.turn.run, counts=False)
    return out.turn.task


@within(max_attempts=2)
async def test_a_step_forward_makes_the_next_try_the_first_again(db: Database, clock: Clock) -> None:
    steps = 0

    async def one_step_at_a_time(run: Run) -> None:
        nonlocal steps
        await db.write(tasks.begin, run)
        steps += 1
        if steps == 5:
            await db.write(terminal.settle, run, outcome())
            return
        await db.write(tasks.checkpoint, run, f"model:{steps}", "[]")
        raise ValueError("a crash behind the step")

    task = await submitted(db)
    async with works(db, one_step_at_a_time, "turn"):
        for _ in range(4):
            await next_try(db, clock)
        await ended(db)
    assert (await db.read(tasks.by_id, task.id)).state == "completed"


@story
async def test_a_handler_whose_attempt_is_over_just_ends(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    async def lost(run: Run) -> None:
        raise LeaseLost

    caplog.set_level(logging.INFO)
    await put(db, "k")
    async with works(db, lost):
        await until(lambda: "is over" in caplog.text)
        assert await states(db) == ["running"]  # whoever has it is not this worker's business


# -- stopping


@story
async def test_stopping_lets_work_end_that_ends_in_time(db: Database) -> None:
    work = Work(db, gated=True)
    await put(db, "k")
    async with works(db, work):
        await until(lambda: work.at_once == 1)
        asyncio.get_running_loop().call_later(0.05, work.gate.set)
    assert await states(db) == ["done"]


@story
async def test_stopping_hands_back_what_does_not_end_and_that_is_no_try(db: Database) -> None:
    """S45: not failed, not left to run out."""
    work = Work(db, gated=True)
    await put(db, "a", "b")
    async with works(db, work, grace_s=0.01):
        await until(lambda: work.at_once == 2)
    assert len(work.stopped) == 2
    found = await rows(db, "select state, tries, attempt, worker, lease_until from runs")
    assert found == [{"state": "queued", "tries": 0, "attempt": 1, "worker": None, "lease_until": None}] * 2


@story
async def test_stopping_takes_nothing_more(db: Database) -> None:
    work = Work(db)
    async with works(db, work) as at_work:
        await at_work.stop(1)
        await put(db, "k")
    assert await states(db) == ["queued"]


@story
async def test_however_a_stop_and_a_claim_meet_no_run_is_left_leased(db: Database) -> None:
    """What a claim took comes to a handler, or back to the queue."""
    for round_ in range(40):
        work = Work(db, gated=bool(round_ % 2))
        at_work = Worker(db, {"report": Handler(work, "all")}, {"all": 4})
        await at_work.start()
        putting = [asyncio.create_task(put(db, f"{round_} {number}")) for number in range(4)]
        for _ in range(round_ % 10):
            await asyncio.sleep(0)
        await at_work.stop(0)
        await asyncio.gather(*putting)
        assert await value(db, "select count(*) from runs where state = 'running'") == 0
        assert {run.id for run in work.began} == {run.id for run in [*work.done, *work.stopped]}


@story
async def test_a_worker_that_has_stopped_is_not_live(db: Database) -> None:
    async with works(db, Work(db), "turn"):
        assert [row["live"] for row in await db.read(worker.live)] == [1]
    assert await db.read(worker.live) == []


@story
async def test_a_process_that_runs_no_turns_is_not_a_live_worker(db: Database) -> None:
    async with works(db, Work(db), "nudge"):
        assert await db.read(worker.live) == []


@pytest.mark.parametrize("sign", ["beat_at", "swept_at"])
@within(worker_ttl=120 * SECOND)
async def test_a_worker_is_live_for_as_long_as_it_was_heard_from(db: Database, clock: Clock, sign: str) -> None:
    await heard_of(db)
    clock.advance(1000)
    await db.write(Tx.x, f"update workers set {sign} = :now", now=clock())
    for seconds, live in ((119, 1), (1, 1), (1, 0)):
        clock.advance(seconds)
        assert [row["live"] for row in await db.read(worker.live)] == [live]
