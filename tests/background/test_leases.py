"""Leases: kept by who works, lost by who is gone; what was left behind is taken over or ended, and a cancel reaches its work."""

import asyncio
from collections.abc import Callable

import pytest

from background import jobs, queue, terminal, worker
from background.database import Database
from background.errors import LeaseLost, StorageUnavailable
from background.limits import SECOND
from background.queue import Run
from background.worker import Handler, Worker
from tests.background.factories import (
    at_work,
    begun,
    claimed,
    fresh,
    running,
    running_job,
    sent_by_api,
    submitted,
)
from tests.background.story import comes_true, opened, rows, story, until, value, within
from tests.background.work import Work, ended, put, states, works
from tests.support.clock import Clock

DAY = 24 * 3600


# -- leases


@within(lease=int(0.06 * SECOND))
async def test_a_lease_is_renewed_for_as_long_as_there_is_work(db: Database, clock: Clock) -> None:
    work = Work(db, gated=True)
    await put(db, "k")
    async with works(db, work, "report", "turn"):
        await until(lambda: work.at_once == 1)
        for _ in range(5):
            before = await value(db, "select lease_until from runs")
            clock.advance(0.05)
            await comes_true(db, "select lease_until > :before from runs", before=before)
        work.gate.set()
        await ended(db)
    assert [run.attempt for run in work.began] == [1]


@within(lease=int(0.06 * SECOND))
async def test_what_nobody_works_on_any_more_is_not_renewed_and_is_taken_up_again(
    db: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage broke just when a failed run was to be given back: its lease must run out, not be kept for ever."""
    broken = True
    real = worker._after_failure

    def unavailable(*args: object) -> None:
        if broken:
            raise StorageUnavailable("database or disk is full")
        real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(worker, "_after_failure", unavailable)
    tries: list[int] = []

    async def breaks_once(run: Run) -> None:
        tries.append(run.attempt)
        if len(tries) == 1:
            raise ValueError("once")
        await db.write(queue.finish, run)

    await put(db, "k")
    async with works(db, breaks_once, "report", "turn"):
        await until(lambda: len(tries) == 1)
        broken = False
        async with asyncio.timeout(5):
            while await value(db, "select state from runs") != "done":
                clock.advance(0.02)
                await asyncio.sleep(0.01)
    assert tries == [1, 2]


@within(lease=int(0.06 * SECOND))
async def test_a_storage_that_is_broken_for_longer_than_a_lease_costs_no_work(
    db: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What works on when nothing could be written meanwhile was not left behind: it is not begun anew."""
    broken = False
    whole = Database.write

    async def write(self: Database, function: Callable[..., object], *args: object, **kwargs: object) -> object:
        if broken:
            raise StorageUnavailable("database or disk is full")
        return await whole(self, function, *args, **kwargs)

    monkeypatch.setattr(Database, "write", write)
    monkeypatch.setattr(worker, "POLL_S", 0.01)
    work = Work(db, gated=True)
    await put(db, "k")
    async with works(db, work, "report", "turn"):
        await until(lambda: work.at_once == 1)
        broken = True
        clock.advance(60)
        await asyncio.sleep(0.1)
        broken = False
        await asyncio.sleep(0.1)
        work.gate.set()
        await ended(db)
    assert [run.attempt for run in work.began] == [1]
    assert work.stopped == []


# -- what another left behind


@story
async def test_what_a_dead_worker_held_is_taken_over_by_another_and_the_dead_one_s_late_words_are_refused(
    db: Database, clock: Clock
) -> None:
    dead = await claimed(db, "k", "dead")
    clock.advance(30.001)
    work = Work(db, gated=True)
    async with works(db, work, "report", "turn"):
        await until(lambda: work.at_once == 1)
        assert [run.attempt for run in work.began] == [2]
        with pytest.raises(LeaseLost):
            await db.write(queue.progress, dead)
        assert not await db.write(queue.finish, dead)
        work.gate.set()
        await ended(db)


@story
async def test_all_that_was_left_behind_is_taken_over_before_a_worker_says_that_it_has_started(
    db: Database, clock: Clock
) -> None:
    for number in range(120):
        await claimed(db, f"k{number}", "dead")
    clock.advance(31)
    at_work = Worker(db, {"turn": Handler(Work(db), "all")}, {"all": 4})
    await at_work.start()
    assert set(await states(db)) == {"queued"}
    await at_work.stop(0)


@within(max_attempts=3)
async def test_a_turn_that_keeps_killing_its_worker_is_failed(db: Database, clock: Clock) -> None:
    """Poison: nobody is there to give it back, so the sweep counts."""
    turn = await running(db, worker="dead 1")
    for number in (2, 3):
        clock.advance(31)
        await db.write(worker.sweep, "sweeper")
        turn = await begun(db, turn.task, f"dead {number}")
    clock.advance(31)
    (note,) = await db.write(worker.sweep, "sweeper")
    assert "lost its worker 3 times" in note
    (row,) = await rows(db, "select state, reason from tasks")
    assert row == {"state": "failed", "reason": "ATTEMPTS_EXHAUSTED"}


@story
async def test_a_follow_up_that_lost_its_worker_is_queued_however_often_and_however_long_ago(
    db: Database, clock: Clock
) -> None:
    await claimed(db, "k", "dead")
    for _ in range(6):
        clock.advance(30 * DAY)
        await db.write(worker.sweep, "sweeper")
        assert await states(db) == ["queued"]
        await db.write(queue.claim, "dead again", "report", 1)


@pytest.mark.parametrize("left", ["by a kill", "by an orderly stop"])
@within(resume_max_age=DAY * SECOND)
async def test_a_turn_that_was_begun_long_ago_is_interrupted_and_no_handler_sees_it(
    db: Database, clock: Clock, left: str
) -> None:
    """S40: a job at work since 16 days. Its prompt is kept for a retry."""
    out = await running_job(db)
    chat = await running(db)
    if left == "by an orderly stop":
        for run in (out.turn.run, chat.run):
            await db.write(queue.release, run, counts=False)
    clock.advance(16 * DAY)
    work = Work(db)
    async with works(db, work, "turn", "job"):
        await comes_true(db, "select ended_at is not null from tasks where id = :id", id=chat.task.id)
    assert work.began == []
    found = await rows(db, "select state, reason from tasks")
    assert found == [{"state": "failed", "reason": "INTERRUPTED"}] * 2
    job = await fresh(db, out.job)
    assert (job.status, job.reason, job.delivery) == ("failed", "INTERRUPTED", "pending")
    assert (await db.write(jobs.retry, job.owner, job.id)).prompt == out.job.prompt


@pytest.mark.parametrize("left", ["by a kill", "by an orderly stop"])
@within(resume_max_age=DAY * SECOND)
async def test_a_turn_that_was_begun_not_so_long_ago_goes_on(db: Database, clock: Clock, left: str) -> None:
    turn = await running(db)
    if left == "by an orderly stop":
        await db.write(queue.release, turn.run, counts=False)
    clock.advance(DAY - 60)
    work = Work(db)
    async with works(db, work, "turn"):
        await ended(db)
    assert [run.attempt for run in work.done] == [2]


@story
async def test_a_turn_that_never_began_starts_however_long_it_waited(db: Database, clock: Clock) -> None:
    await submitted(db)
    clock.advance(16 * DAY)
    work = Work(db)
    async with works(db, work, "turn"):
        await ended(db)
    assert len(work.done) == 1


# -- canceling


@story
async def test_a_cancel_stops_the_work_at_once(db: Database) -> None:
    work = Work(db, gated=True)
    task = await submitted(db)
    async with works(db, work, "turn"), asyncio.timeout(0.9):
        await until(lambda: work.at_once == 1)
        await db.write(terminal.cancel_task, task, "user")
        await until(lambda: len(work.stopped) == 1)


@story
async def test_a_cancel_in_one_process_stops_the_work_in_another_promptly(db: Database, clock: Clock) -> None:
    """A49: no message between processes tells of it; it is learned from the row."""
    work = Work(db, gated=True)
    task = await submitted(db)
    async with works(db, work, "turn"), opened(db.path, clock) as other:
        await until(lambda: work.at_once == 1)
        assert await other.write(terminal.cancel_task, task, "user")
        await until(lambda: len(work.stopped) == 1, timeout_s=3)
    assert await states(db) == ["canceled"]


@story
async def test_a_cancel_touches_no_other_work(db: Database) -> None:
    work = Work(db, gated=True)
    victim = await submitted(db, session_id="one")
    await submitted(db, session_id="another")
    async with works(db, work, "turn"):
        await until(lambda: work.at_once == 2)
        await db.write(terminal.cancel_task, victim, "user")
        await until(lambda: len(work.stopped) == 1)
        work.gate.set()
        await ended(db, 2)
    assert [run.task_id for run in work.stopped] == [victim.id]
    assert sorted(await states(db)) == ["canceled", "done"]


@story
async def test_what_was_canceled_while_it_waited_never_begins(db: Database) -> None:
    work = Work(db)
    (job,) = await sent_by_api(db)
    out = await at_work(db, job)
    await db.write(queue.release, out.turn.run)
    await db.write(terminal.cancel_job, await fresh(db, job), "user")
    async with works(db, work, "turn", "job"):
        await put(db, "other", kind="turn", task_id=None)
        await until(lambda: bool(work.began))
    assert [run.task_id for run in work.began] == [None]
