"""Delivery: an end is taken up by one turn, delivered by the turn that completed, and waits for another where it did not."""

from typing import Any

import pytest

from background import delivery, job_rows, jobs, queue, terminal
from background.database import Database, Tx
from background.limits import MINUTE
from background.queue import Run
from tests.background.factories import (
    Turn,
    brought_to_end,
    chat,
    ended_job,
    fresh,
    nudges,
    running,
    sent_by_api,
    settled,
    taken_up,
)
from tests.background.story import everything, opened, plans, rows, story
from tests.support.clock import Clock

TURNS_THAT_FAIL = delivery.GIVE_UP_AFTER


async def state(db: Database, job: job_rows.Job) -> str:
    return (await fresh(db, job)).delivery


async def failed_over(db: Database, job: job_rows.Job, times: int) -> None:
    """So many turns have taken the job up and failed."""
    for _ in range(times):
        turn = await running(db)
        assert await taken_up(db, turn) == [job.id]
        await settled(db, turn, "failed")


async def again(db: Database, turn: Turn) -> dict[str, Any]:
    """The run that will wake the session again after a turn that failed."""
    (row,) = await rows(db, "select * from runs where key = :key", key=f"nudge:again:{turn.task.id}")
    return row


# -- taken up, and delivered


@story
async def test_attached_is_not_delivered(db: Database) -> None:
    """S03: handed to a turn, put into its prompt: none of that is told."""
    job = await ended_job(db)
    turn = await running(db)
    assert await taken_up(db, turn) == [job.id]
    told = (await fresh(db, job)).public()
    assert (told["delivery"]["state"], told["notified"], told["notified_at"], told["notified_in"]) == (
        "attached",
        False,
        None,
        None,
    )


@story
async def test_delivered_is_what_a_completed_turn_has_seen_from_the_commit_that_settled_it(
    db: Database, clock: Clock
) -> None:
    job = await ended_job(db)
    turn = await running(db)
    await taken_up(db, turn)
    clock.advance(7)
    await settled(db, turn)
    now = await fresh(db, job)
    assert (now.delivery, now.delivery_task, now.notified_at) == ("delivered", turn.task.id, clock())
    assert now.public()["notified_in"] == turn.task.id


@story
async def test_an_end_is_taken_up_by_one_turn(db: Database, clock: Clock) -> None:
    job = await ended_job(db)
    first, second = await running(db), await running(db, session_id="another")
    async with opened(db.path, clock) as other:
        won = [
            await db.write(delivery.attach, first.task.id, job.id),
            await other.write(delivery.attach, second.task.id, job.id),
        ]
    assert won == [True, False]
    await settled(db, second)
    assert await state(db, job) == "attached"


@story
async def test_taking_up_twice_is_once(db: Database) -> None:
    job = await ended_job(db)
    turn = await running(db)
    assert await taken_up(db, turn) == [job.id]
    assert await taken_up(db, turn) == []
    assert not await db.write(delivery.attach, turn.task.id, job.id)


@story
async def test_ends_are_told_in_the_order_in_which_they_came(db: Database, clock: Clock) -> None:
    """S25."""
    sent = await sent_by_api(db, "a", "b", "c")
    for job in (sent[0], sent[1], sent[2]):
        clock.advance(1)
        await brought_to_end(db, job)
    turn = await running(db)
    assert await taken_up(db, turn) == [job.id for job in sent]
    assert await db.read(delivery.attached_to, turn.task.id) == [job.id for job in sent]


@story
async def test_ends_are_told_to_the_session_that_they_came_from_and_to_no_other(db: Database) -> None:
    """S22."""
    mine = await sent_by_api(db, session=await chat(db, "mine"))
    theirs = await sent_by_api(db, session=await chat(db, "theirs"))
    same_name = await sent_by_api(db, session=await chat(db, "mine", owner="bob"))
    for job in (*mine, *theirs, *same_name):
        await brought_to_end(db, job)
    assert await taken_up(db, await running(db, session_id="mine")) == [mine[0].id]
    assert await taken_up(db, await running(db, session_id="third")) == []
    assert await taken_up(db, await running(db, session_id="theirs")) == [theirs[0].id]
    assert await taken_up(db, await running(db, session_id="mine", owner="bob")) == [same_name[0].id]


@story
async def test_an_end_that_a_model_reads_before_its_report_is_done_is_taken_up_by_that_turn(db: Database) -> None:
    """S16: it has its news, and no turn follows for it alone."""
    (job,) = await sent_by_api(db)
    turn = await running(db)
    await db.write(jobs.end, job.id, None, jobs.JobEnd("failed", reason="INTERRUPTED"))
    assert await taken_up(db, turn) == []
    assert await db.write(delivery.attach, turn.task.id, job.id)
    await settled(db, turn)
    await db.write(jobs.report_done, job.id, 1)
    assert await nudges(db) == []
    assert await state(db, job) == "delivered"


@story
async def test_a_job_at_work_is_not_to_be_taken_up(db: Database) -> None:
    (job,) = await sent_by_api(db)
    turn = await running(db)
    assert not await db.write(delivery.attach, turn.task.id, job.id)


# -- released


@story
async def test_a_failed_turn_releases_what_it_took_up_with_a_nudge_in_a_minute(db: Database, clock: Clock) -> None:
    """S12."""
    job = await ended_job(db)
    turn = await running(db)
    await taken_up(db, turn)
    await settled(db, turn, "failed")
    now = await fresh(db, job)
    assert (now.delivery, now.delivery_task, now.delivery_tries) == ("pending", None, 1)
    assert now.delivery_error == "The model failed."
    run = Run.of((await db.read(lambda tx: tx.q("select * from runs where key like 'nudge:again:%'")))[0])
    assert run.params == {"again": turn.task.id, "jobs": [job.id]}
    assert (await again(db, turn))["due_at"] == clock() + MINUTE


@story
async def test_the_pause_doubles_and_then_it_is_given_up(db: Database, clock: Clock) -> None:
    job = await ended_job(db)
    pauses = []
    for _ in range(TURNS_THAT_FAIL - 1):
        turn = await running(db)
        await taken_up(db, turn)
        await settled(db, turn, "failed")
        pauses.append(((await again(db, turn))["due_at"] - clock()) // MINUTE)
    assert pauses == [1, 2, 4, 8, 16]
    nudges_so_far = await nudges(db)
    await failed_over(db, job, 1)
    given_up = await fresh(db, job)
    assert (given_up.delivery, given_up.delivery_tries) == ("undeliverable", TURNS_THAT_FAIL)
    assert await nudges(db) == nudges_so_far
    assert await taken_up(db, await running(db)) == []


@story
async def test_the_pause_is_never_more_than_an_hour(
    db: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "GIVE_UP_AFTER", 100)
    job = await ended_job(db)
    await failed_over(db, job, 6)
    for _ in range(3):
        turn = await running(db)
        await taken_up(db, turn)
        await settled(db, turn, "failed")
        assert (await again(db, turn))["due_at"] == clock() + 60 * MINUTE


@story
async def test_after_three_turns_that_failed_its_text_is_left_out(db: Database) -> None:
    """What breaks a turn may be the report itself."""
    job = await ended_job(db)
    textless = []
    for _ in range(TURNS_THAT_FAIL):
        (row,) = await db.read(delivery.waiting, job.session, fired_only=False)
        textless.append(row["failed_turns"] >= delivery.TEXTLESS_AFTER)
        await failed_over(db, job, 1)
    assert textless == [False, False, False, True, True, True]


@story
async def test_one_that_is_given_up_takes_no_other_with_it(db: Database, clock: Clock) -> None:
    old = await ended_job(db)
    await failed_over(db, old, TURNS_THAT_FAIL - 1)
    clock.advance(1)
    new = await ended_job(db)
    turn = await running(db)
    assert await taken_up(db, turn) == [old.id, new.id]
    await settled(db, turn, "failed")
    assert [await state(db, job) for job in (old, new)] == ["undeliverable", "pending"]
    (run,) = await rows(db, "select params from runs where key = :key", key=f"nudge:again:{turn.task.id}")
    assert old.id not in run["params"]
    assert new.id in run["params"]


@story
async def test_a_turn_that_its_user_canceled_releases_without_a_nudge(db: Database) -> None:
    job = await ended_job(db)
    turn = await running(db)
    await taken_up(db, turn)
    before = await nudges(db)
    await db.write(terminal.cancel_task, turn.task, "user")
    now = await fresh(db, job)
    assert (now.delivery, now.delivery_tries, now.delivery_error) == ("pending", 0, "Canceled by its user.")
    assert await nudges(db) == before
    assert await taken_up(db, await running(db)) == [job.id]


@story
async def test_what_was_released_is_told_once_by_the_turn_that_completes(db: Database) -> None:
    job = await ended_job(db)
    await failed_over(db, job, 2)
    turn = await running(db)
    await taken_up(db, turn)
    await settled(db, turn)
    now = await fresh(db, job)
    assert (now.delivery, now.delivery_task, now.delivery_error) == ("delivered", turn.task.id, None)
    assert await taken_up(db, await running(db)) == []


@story
async def test_a_turn_that_goes_on_after_a_crash_still_has_what_it_took_up(db: Database) -> None:
    job = await ended_job(db)
    turn = await running(db)
    await taken_up(db, turn)
    await db.write(queue.release, turn.run, error="its worker stopped")
    assert await db.read(delivery.attached_to, turn.task.id) == [job.id]
    assert await state(db, job) == "attached"
    assert await taken_up(db, await running(db, session_id="another")) == []


@story
async def test_a_delivered_end_never_moves_again(db: Database) -> None:
    job = await ended_job(db)
    turn = await running(db)
    await taken_up(db, turn)
    await settled(db, turn)
    before = everything(db.path)["deliveries"]
    await db.write(delivery.deliver, turn.task.id)
    await db.write(delivery.release, turn.task.id, "late", nudge=True)
    await db.write(delivery.drop, job.id, 1, "late")
    await db.write(delivery.held_up, [job.id], "late", tried=True)
    assert everything(db.path)["deliveries"] == before


# -- what a nudge meets


@story
async def test_a_nudge_that_cannot_be_posted_is_counted_and_its_reason_shown(db: Database) -> None:
    """S02."""
    job = await ended_job(db)
    for number in range(1, 4):
        await db.write(delivery.held_up, [job.id], f"HTTP 503, number {number}", tried=True)
    await db.write(delivery.held_up, [job.id], "OUTRIDER_AUTO_RESUME is off", tried=False)
    now = await fresh(db, job)
    assert (now.delivery, now.delivery_tries, now.delivery_error) == ("pending", 3, "OUTRIDER_AUTO_RESUME is off")


@story
async def test_how_much_waits_to_be_told_and_since_when_is_known(db: Database, clock: Clock) -> None:
    assert tuple(await db.read(delivery.undelivered)) == (0, None, 0)
    first = await ended_job(db)
    clock.advance(60)
    second = await ended_job(db)
    assert tuple(await db.read(delivery.undelivered)) == (2, clock() - MINUTE, 0)
    turn = await running(db)
    await taken_up(db, turn)
    assert tuple(await db.read(delivery.undelivered)) == (2, clock() - MINUTE, 0)
    await settled(db, turn)
    assert tuple(await db.read(delivery.undelivered)) == (0, None, 0)
    assert [await state(db, job) for job in (first, second)] == ["delivered", "delivered"]


@story
async def test_what_its_user_canceled_waits_for_his_next_turn_and_alarms_nobody(db: Database) -> None:
    """And where it is asked for, it says so."""
    job = await ended_job(db, "canceled")
    assert tuple(await db.read(delivery.undelivered)) == (0, None, 1)
    assert (await fresh(db, job)).delivery_error == delivery.NO_NEWS
    assert await taken_up(db, await running(db)) == [job.id]


@story
async def test_what_a_session_is_to_be_told_is_found_by_an_index(db: Database) -> None:
    job = await ended_job(db)
    turn = await running(db)

    def look(tx: Tx) -> list[str]:
        lines = plans(tx, delivery.waiting, job.session, fired_only=False)
        lines += plans(tx, delivery.waiting, job.session, fired_only=True)
        lines += plans(tx, delivery.attach, turn.task.id, job.id)
        lines += plans(tx, delivery.attached_to, turn.task.id)
        lines += plans(tx, delivery.release, turn.task.id, "why", nudge=False)
        return lines + plans(tx, delivery.deliver, turn.task.id)

    lines = await db.write(look)
    assert len(lines) >= 4
    assert [line for line in lines if line.startswith("SCAN")] == []
