"""One row that cannot be written is its own trouble: the worker goes on, and so does everything beside it (A06, A07)."""

import logging

import pytest

from background import job_rows, queue, terminal
from background.database import Database, Tx
from tests.background.factories import ended_job, nudged, nudges, outcome, running
from tests.background.story import comes_true, story, until, value
from tests.background.work import Work, put, works
from tests.support.clock import Clock


def refused(what: str) -> str:
    """A trigger by which the file refuses something."""
    return f"create trigger refused before {what} begin select raise(abort, 'refused'); end"


@story
async def test_a06_a_run_that_cannot_be_taken_over_holds_up_no_other(
    db: Database, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = await running(db, "stuck", session_id="one")
    other = await running(db, "other", session_id="two")
    await db.write(Tx.x, refused(f"update on runs when old.id = {stuck.run.id}"))
    clock.advance(3600)
    with caplog.at_level(logging.ERROR):
        async with works(db, Work(db), "turn"):
            await comes_true(db, f"select state = 'queued' or attempt > 1 from runs where id = {other.run.id}")
    assert f"run {stuck.run.id} cannot be taken over" in caplog.text
    assert await value(db, f"select state from runs where id = {stuck.run.id}") == "running"


@story
async def test_a06_what_goes_wrong_in_one_round_does_not_end_the_worker(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work(db)
    async with works(db, work) as at_work:
        await db.write(Tx.x, refused("update on runs when new.state = 'running'"))
        await put(db, "a")
        await until(lambda: f"worker {at_work.id} goes on after error" in caplog.text)
        await db.write(Tx.x, "drop trigger refused")
        await put(db, "b")
        await comes_true(db, "select count(*) = 2 from runs where state = 'done'")


@story
async def test_f028_an_end_that_has_no_result_is_an_end_all_the_same(db: Database) -> None:
    turn = await running(db)
    await db.write(Tx.x, refused("insert on results"))
    failed = outcome("failed", "", reason="NO_REPORT", written=False)
    assert await db.write(terminal.settle, turn.run, failed)
    assert await value(db, "select state from tasks") == "failed"
    assert await value(db, "select count(*) from results") == 0


@story
async def test_s12_a_nudge_that_fails_before_it_took_up_anything_is_posted_again(db: Database, clock: Clock) -> None:
    job = await ended_job(db)
    (first,) = await nudges(db)
    nudge = await nudged(db, first)

    def fail(tx: Tx) -> bool:
        run = queue.open_run_of(tx, nudge.id)
        assert run is not None
        return terminal.settle_expired(tx, run["id"], nudge.id, outcome("failed", "", reason="INTERRUPTED"))

    assert await db.write(fail)
    assert await nudges(db) == [f"nudge:again:{nudge.id}"]
    waits = await db.read(job_rows.by_id, job.id)
    assert (waits.delivery, waits.delivery_tries) == ("pending", 1) and waits.delivery_error
