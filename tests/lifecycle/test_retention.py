"""What has outlived its time goes, and nothing else: by how it ended, whether it was told, and whose profile it was."""

from typing import Any

import pytest

from background import batches, delivery, events, job_rows, jobs, retention, sessions
from background.database import Database, Tx
from background.job_rows import Job
from background.limits import SECOND
from background.retention import AT_ONCE, ROWS_AT_ONCE, Ages
from tests.background.asking import parked, question
from tests.background.factories import (
    OWNER,
    at_work,
    brought_to_end,
    chat,
    ended,
    ended_job,
    fan,
    running,
    running_job,
    sent_by_api,
    settled,
    submitted,
    taken_up,
)
from tests.background.story import story, value
from tests.support.clock import Clock

DAY = 24 * 3600
AGES = Ages(days=10)


async def purged(db: Database, ages: Ages = AGES) -> int:
    """All transactions of one purge; how many rows they say that they took."""
    count = 0
    while some := await db.write(retention.purge, ages):
        count += some
    return count


async def left(db: Database, table: str) -> list[str]:
    def ids(tx: Tx) -> list[str]:
        return [row["id"] for row in tx.q(f"select id from {table} order by id")]

    return await db.read(ids)


async def told(db: Database) -> Job:
    """A job of a session of its own whose end a turn has told."""
    session = await chat(db, "told")
    (job,) = await sent_by_api(db, session=session)
    await brought_to_end(db, job)
    turn = await running(db, session_id="told")
    assert await taken_up(db, turn) == [job.id]
    await settled(db, turn)
    return job


async def given_up(db: Database) -> Job:
    """A job whose end will never be told."""
    job = await ended_job(db)
    await db.write(delivery.drop, job.id, 1, "nobody is there")
    return job


async def dismissed(db: Database) -> Job:
    """A job that was told of and hidden since."""
    job = await told(db)
    return await db.write(jobs.dismiss, OWNER, job.id)


async def dismissed_untold(db: Database) -> Job:
    job = await ended_job(db, "failed")
    return await db.write(jobs.dismiss, OWNER, job.id)


async def held_by_a_turn(db: Database) -> Job:
    """A job whose end a turn is telling just now."""
    job = await ended_job(db)
    await taken_up(db, await running(db))
    return job


async def at_work_now(db: Database) -> Job:
    return (await running_job(db)).job


async def waiting_for_an_answer(db: Database) -> Job:
    out = await running_job(db)
    await parked(db, question(), turn=out.turn)
    return out.job


async def queued(db: Database) -> Job:
    (job,) = await sent_by_api(db)
    return job


async def tried_again(db: Database) -> Job:
    """A job that failed long ago, and whose retry is at work."""
    job = await ended_job(db, "failed")
    return (await at_work(db, await db.write(jobs.retry, OWNER, job.id))).job


AFTER_ONCE, AFTER_TWICE, NEVER = (11, 12, 25), (21, 25), ()


@pytest.mark.parametrize(
    ("make", "gone_at"),
    [
        (told, AFTER_ONCE),
        (given_up, AFTER_ONCE),
        (dismissed, AFTER_ONCE),
        (ended_job, AFTER_TWICE),
        (dismissed_untold, AFTER_TWICE),
        (held_by_a_turn, NEVER),
        (at_work_now, NEVER),
        (waiting_for_an_answer, NEVER),
        (queued, NEVER),
        (tried_again, NEVER),
    ],
)
@story
async def test_a_job_goes_once_it_has_ended_and_was_told_for_long_enough(
    db: Database, clock: Clock, make: Any, gone_at: tuple[int, ...]
) -> None:
    """F161: one that nobody was told of is kept twice as long; one that has not ended is not purged at all."""
    job = await make(db)
    days = 0
    for day in (9, 11, 12, 19, 21, 25):
        clock.advance((day - days) * DAY)
        days = day
        await purged(db)
        there = await db.read(job_rows.known, job.id)
        assert (there is None) == (day in gone_at or any(day > at for at in gone_at)), day


@story
async def test_a_job_that_goes_takes_all_that_is_its_own_and_its_batchs_others_stay(db: Database, clock: Clock) -> None:
    """F161, F133: sessions, tasks, results and checkpoints of its work; the batch goes with its last member."""
    sent = await fan(db, 2)
    for out in sent.outs[:1]:
        await settled(db, out.turn)
    clock.advance(25 * DAY)
    await purged(db)
    (kept,) = [out.job.id for out in sent.outs[1:]]
    assert await left(db, "jobs") == [kept]
    assert [one for one in await left(db, "sessions") if one != "s"] == [f"background:{kept}"]
    assert await left(db, "tasks") == [sent.outs[1].turn.task.id]
    assert (await db.read(batches.get, OWNER, sent.batch))[1][0]["job_id"] == kept
    await settled(db, sent.outs[1].turn)
    clock.advance(25 * DAY)
    await purged(db)
    assert await left(db, "jobs") == await left(db, "batches") == await left(db, "sessions") == []


@story
async def test_turns_go_by_their_own_profiles_days_or_by_the_rule(db: Database, clock: Clock) -> None:
    """F160: what waits, works or is parked stays, however old."""
    ages = Ages(days=10, of_profile={"short": 2, "long": 90})
    of = {name: (await ended(db, profile=name, session_id=name)).id for name in ("short", "chat", "long")}
    open_ones = [
        (await running(db, session_id="work")).task.id,
        (await submitted(db, session_id="wait")).id,
        (await parked(db, session_id="park")).task.id,
    ]
    for days, gone in ((1, []), (3, ["short"]), (11, ["short", "chat"]), (91, ["short", "chat", "long"])):
        clock._now = 1_800_000_000_000_000 + days * DAY * SECOND
        await purged(db, ages)
        assert await left(db, "tasks") == sorted([of[name] for name in of if name not in gone] + open_ones), days


@story
async def test_what_was_told_of_a_turn_goes_with_it_also_before_other_events_do(db: Database, clock: Clock) -> None:
    """F160: an event may say what a turn has asked."""
    short = await ended(db, profile="short")
    usual = await ended(db)
    clock.advance(3 * DAY)
    await purged(db, Ages(days=10, of_profile={"short": 2}))

    def told(tx: Tx) -> str:
        return " ".join(event.data for event in events.after(tx, OWNER, 0))

    left = await db.read(told)
    assert short.id not in left and usual.id in left


@story
async def test_when_all_has_outlived_its_time_no_row_of_anybody_is_left(db: Database, clock: Clock) -> None:
    """F133: and what is kept besides, runs and events, goes by the same rule."""
    await told(db)
    await given_up(db)
    await ended(db, "failed")
    await ended(db, "canceled")
    await db.write(sessions.open_session, OWNER, "never used")
    clock.advance(25 * DAY)
    assert await purged(db) > 5
    for table in (
        "sessions",
        "tasks",
        "results",
        "checkpoints",
        "messages",
        "jobs",
        "deliveries",
        "members",
        "batches",
    ):
        assert await value(db, f"select count(*) from {table}") == 0, table
    for table in ("receipts", "revisions", "views", "journal", "events", "joins", "questions", "fragments", "webhooks"):
        assert await value(db, f"select count(*) from {table}") == 0, table
    assert await value(db, "select count(*) from runs where ended_at is not null") == 0
    assert await purged(db) == 0


@story
async def test_a_session_stays_as_long_as_anything_of_it_does(db: Database, clock: Clock) -> None:
    await ended(db)
    out = await running_job(db)
    clock.advance(25 * DAY)
    await purged(db)
    assert await left(db, "sessions") == [f"background:{out.job.id}", "s"]
    assert await left(db, "tasks") == [out.turn.task.id]


OF_TASK = ("results", "checkpoints", "views", "journal", "revisions", "receipts", "messages", "runs")
FRESH = {"task_id": "task_id || '-' || i", "message_id": "message_id || '-' || i", "key": "key || '-' || i"}


def _many(tx: Tx, count: int) -> None:
    """So many copies of the one ended task there is, with all that hangs on it."""
    (task,) = tx.q("select * from tasks")
    numbers = "(with recursive n(i) as (select 1 union all select i + 1 from n where i < :count) select i from n)"
    for table in ("tasks", *OF_TASK):
        fresh = FRESH | {"id": "id || '-' || i"} if table == "tasks" else FRESH
        columns = [row["name"] for row in tx.q(f"select name from pragma_table_info('{table}')")]
        columns = [column for column in columns if column != "id" or table == "tasks"]
        chosen = ", ".join(fresh.get(column, column) for column in columns)
        tx.x(f"insert into {table} ({', '.join(columns)}) select {chosen} from {table}, {numbers}", count=count)
    for _ in range(count // 2):
        events.emit(tx, OWNER, task["session"], "turn.finished", {})


@story
async def test_a_purge_of_thousands_holds_nobody_up(db: Database, clock: Clock) -> None:
    """F160: each transaction takes a bounded number, and costs as little when many are left as when few are."""
    await ended(db)
    await db.write(_many, 5000)
    clock.advance(25 * DAY)
    costs, counts, before = [], [], await value(db, "select count(*) from tasks")
    assert before == 5001

    def one(tx: Tx) -> int:
        steps = 0

        def step() -> int:
            nonlocal steps
            steps += 1
            return 0

        tx._connection.set_progress_handler(step, 1000)
        taken = retention.purge(tx, AGES)
        tx._connection.set_progress_handler(None, 0)
        costs.append(steps)
        return taken

    while taken := await db.write(one):
        counts.append(taken)
        if len(counts) % 25 == 0:  # whoever comes in between is served, and finds what is left whole
            assert await value(db, "select count(*) from tasks t join results r on r.task_id = t.id") == await value(
                db, "select count(*) from tasks"
            )
    assert len(counts) >= 5000 // AT_ONCE
    assert max(counts) <= 3 * AT_ONCE + 2 * ROWS_AT_ONCE
    assert max(costs[5:]) < 200  # of a thousand steps each
    assert await left(db, "tasks") == [] == await left(db, "sessions")
