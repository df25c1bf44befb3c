"""The join: what one turn sent out comes back together, once; at the deadline what is there; stragglers as a next generation."""

import asyncio
from collections import Counter

import pytest

from background import batches, jobs, queue, terminal
from background.database import Database, Tx
from background.errors import Fault
from background.limits import SECOND
from tests.background.factories import (
    OWNER,
    briefing,
    brought_to_end,
    counted,
    ended_job,
    ends,
    fan,
    fresh,
    ids,
    nudged,
    nudges,
    reported,
    running,
    sent_by_api,
    sent_out,
    settled,
    submitted,
    take,
    taken_up,
    told_by,
)
from tests.background.story import opened, rows, story, value, within
from tests.support.clock import Clock

DEADLINE_S = 900


async def deadline(db: Database, batch: str) -> None:
    """The batch's deadline run is worked on, as soon as it is due."""

    def work(tx: Tx) -> None:
        run = take(tx, "key", f"join:{batch}")
        queue.finish(tx, run)
        batches.past_deadline(tx, batch)

    await db.write(work)


# -- together


@story
async def test_a_batch_fires_once_when_the_last_of_it_may_be_told(db: Database) -> None:
    """S31."""
    sent = await fan(db, 7)
    for out in sent.outs[:6]:
        await ends(db, out, "completed")
        assert await nudges(db) == []
    await ends(db, sent.outs[6], "failed")
    assert await nudges(db) == [f"nudge:{sent.batch}:1"]
    assert await told_by(db, f"nudge:{sent.batch}:1") == ids(*sent.outs)
    assert await counted(db, sent) == [{"completed": 6, "failed": 1}]


@story
async def test_an_end_is_not_told_before_its_report_is_done(db: Database) -> None:
    """A pointer at an index that never ran is worse than none."""
    sent = await fan(db, 1)
    await settled(db, sent.outs[0].turn)
    assert await nudges(db) == []
    await reported(db, sent.outs[0].job)
    assert len(await nudges(db)) == 1


@story
async def test_a_fast_first_member_never_fires_before_its_siblings_exist(db: Database) -> None:
    """S32: the batch is open for as long as the turn that sends out may send out more."""
    turn = await running(db)
    (first,) = await sent_out(db, turn, "a")
    await brought_to_end(db, first)
    assert await nudges(db) == []
    second, third = await sent_out(db, turn, "b", "c")
    await brought_to_end(db, second)
    await settled(db, turn)
    assert await nudges(db) == []
    await brought_to_end(db, third)
    assert await nudges(db) == [f"nudge:{turn.task.id}:1"]
    assert await told_by(db, f"nudge:{turn.task.id}:1") == sorted(job.id for job in (first, second, third))


@pytest.mark.parametrize("state", ["completed", "failed", "canceled"])
@story
async def test_however_the_sending_turn_ends_its_batch_closes(db: Database, state: str) -> None:
    """S58: canceling a turn does not touch its jobs, and they are told."""
    sent = await fan(db, 1, closed=False)
    await ends(db, sent.outs[0])
    assert await nudges(db) == []
    if state == "canceled":
        await db.write(terminal.cancel_task, sent.turn.task, "user")
    else:
        await settled(db, sent.turn, state)
    assert await nudges(db) == [f"nudge:{sent.batch}:1"]


@story
async def test_when_all_fail_at_once_it_fires_at_once(db: Database) -> None:
    """S35."""
    sent = await fan(db, 4)
    await asyncio.gather(*(settled(db, out.turn, "failed") for out in sent.outs))
    await asyncio.gather(*(reported(db, out.job) for out in sent.outs))
    assert await counted(db, sent) == [{"failed": 4}]
    assert len(await nudges(db)) == 1


@story
async def test_a_batch_holds_no_job_of_another_back(db: Database) -> None:
    sent = await fan(db, 2)
    alone = await ended_job(db)
    assert await nudges(db) == [f"nudge:{alone.batch_id}:1"]
    assert await told_by(db, f"nudge:{alone.batch_id}:1") == [alone.id]
    await ends(db, sent.outs[0])
    assert len(await nudges(db)) == 1


@story
async def test_a_list_from_outside_a_turn_is_closed_from_its_first_moment(db: Database) -> None:
    one, two = await sent_by_api(db, "one", "two")
    await brought_to_end(db, one)
    assert await nudges(db) == []
    await brought_to_end(db, two)
    assert await nudges(db) == [f"nudge:{one.batch_id}:1"]


# -- once


@story
async def test_who_settles_at_the_same_moment_as_another_does_not_fire_a_second_time(
    db: Database, clock: Clock
) -> None:
    """The key (batch, generation) is the claim: through two processes, in any order, with the deadline beside it."""
    async with opened(db.path, clock) as other:
        for _ in range(25):
            sent = await fan(db, 3)
            await asyncio.gather(*(settled(db, out.turn) for out in sent.outs))
            homes = [db, other, db]
            await asyncio.gather(
                *(home.write(jobs.report_done, out.job.id, 1) for home, out in zip(homes, sent.outs, strict=True)),
                *(home.write(batches.check, sent.batch) for home in (other, db)),
                other.write(batches.past_deadline, sent.batch),
            )
            told = [key for key in await nudges(db) if sent.batch in key]
            members = Counter([job for key in told for job in await told_by(db, key)])
            assert members == Counter(out.job.id for out in sent.outs)


@story
async def test_a_report_that_is_done_twice_fires_once(db: Database) -> None:
    """S13."""
    job = await ended_job(db)
    before = await rows(db, "select * from runs order by id")
    for _ in range(3):
        await db.write(jobs.report_done, job.id, 1)
        await db.write(batches.check, job.batch_id)
    assert await rows(db, "select * from runs order by id") == before


@story
async def test_a_nudge_that_was_posted_is_noted_on_its_join_for_good(db: Database) -> None:
    job = await ended_job(db)
    task = await nudged(db, f"nudge:{job.batch_id}:1")
    await db.write(batches.nudged, job.batch_id, 1, "another")
    _, _, joins = await db.read(batches.get, OWNER, job.batch_id)
    assert [join["task_id"] for join in joins] == [task.id]


# -- the deadline


@within(batch_join_timeout=DEADLINE_S * SECOND)
async def test_at_the_deadline_what_is_there_is_told_and_the_rest_comes_as_the_next_generation(
    db: Database, clock: Clock
) -> None:
    """S33, S34: one hangs; its siblings' work is neither lost nor held up, and not told again when it comes."""
    sent = await fan(db, 5)
    for out in sent.outs[:3]:
        await ends(db, out)
    await ends(db, sent.outs[3], "failed")
    clock.advance(DEADLINE_S - 1)
    assert await nudges(db) == []
    clock.advance(1)
    await deadline(db, sent.batch)
    assert await told_by(db, f"nudge:{sent.batch}:1") == ids(*sent.outs[:4])
    assert await counted(db, sent) == [{"completed": 3, "failed": 1, "out": 1}]
    turn, told = await briefing(db, f"nudge:{sent.batch}:1")
    assert sorted(told) == ids(*sent.outs[:4])
    await settled(db, turn)
    await ends(db, sent.outs[4])
    assert await nudges(db) == [f"nudge:{sent.batch}:2"]
    assert (await briefing(db, f"nudge:{sent.batch}:2"))[1] == ids(sent.outs[4])
    assert await counted(db, sent) == [{"completed": 3, "failed": 1, "out": 1}, {"completed": 4, "failed": 1}]


@within(batch_join_timeout=DEADLINE_S * SECOND)
async def test_the_deadline_counts_from_the_first_end(db: Database, clock: Clock) -> None:
    sent = await fan(db, 3)
    clock.advance(5000)
    await ends(db, sent.outs[0])
    clock.advance(100)
    await ends(db, sent.outs[1])
    due = await value(db, "select due_at from runs where kind = 'join'")
    assert due == clock() + (DEADLINE_S - 100) * SECOND
    assert await value(db, "select count(*) from runs where kind = 'join'") == 1


@within(batch_join_timeout=DEADLINE_S * SECOND)
async def test_a_join_needs_its_deadline_no_more(db: Database, clock: Clock) -> None:
    """It is not left in the queue either, where it would look like work that waits."""
    sent = await fan(db, 2)
    for out in sent.outs:
        await ends(db, out)
    clock.advance(DEADLINE_S)
    assert await db.read(queue.due, ("join",)) == {}
    assert await nudges(db) == [f"nudge:{sent.batch}:1"]


@pytest.mark.parametrize("closed", [True, False])
@within(batch_join_timeout=DEADLINE_S * SECOND)
async def test_an_end_whose_report_is_done_only_behind_the_deadline_is_told_then(
    db: Database, clock: Clock, closed: bool
) -> None:
    """The index failed just then, or nobody worked: the deadline found nothing to tell, and is not forgotten."""
    sent = await fan(db, 2, closed=closed)
    await settled(db, sent.outs[0].turn)
    clock.advance(DEADLINE_S)
    await deadline(db, sent.batch)
    assert await nudges(db) == []
    clock.advance(5)
    await reported(db, sent.outs[0].job)
    assert await told_by(db, f"nudge:{sent.batch}:1") == ids(sent.outs[0])
    assert await counted(db, sent) == [{"completed": 1, "out": 1}]
    if not closed:
        await settled(db, sent.turn)
    await ends(db, sent.outs[1])
    assert await told_by(db, f"nudge:{sent.batch}:2") == ids(sent.outs[1])


# -- what is not told


@story
async def test_what_its_user_canceled_alone_starts_no_turn(db: Database) -> None:
    """S57; the user's next turn carries the fact once."""
    sent = await fan(db, 2)
    for out in sent.outs:
        await db.write(terminal.cancel_job, out.job, "user")
        await reported(db, out.job)
    assert await nudges(db) == []
    assert await counted(db, sent) == []
    turn = await running(db, "what happened?")
    assert sorted(await taken_up(db, turn)) == ids(*sent.outs)
    await settled(db, turn)
    assert await taken_up(db, await running(db)) == []


@pytest.mark.parametrize("by", ["agent", "plugin"])
@story
async def test_what_another_canceled_is_news_to_its_user(db: Database, by: str) -> None:
    sent = await fan(db, 1)
    await db.write(terminal.cancel_job, sent.outs[0].job, by)
    await reported(db, sent.outs[0].job)
    assert len(await nudges(db)) == 1


@story
async def test_one_that_its_user_canceled_is_told_beside_what_ended_otherwise(db: Database) -> None:
    """S37."""
    sent = await fan(db, 2)
    await db.write(terminal.cancel_job, sent.outs[0].job, "user")
    await reported(db, sent.outs[0].job)
    assert await nudges(db) == []
    await ends(db, sent.outs[1])
    assert await told_by(db, f"nudge:{sent.batch}:1") == ids(*sent.outs)
    assert await counted(db, sent) == [{"canceled": 1, "completed": 1}]


@story
async def test_what_a_user_s_own_turn_took_up_is_not_told_again(db: Database) -> None:
    sent = await fan(db, 2)
    await ends(db, sent.outs[0])
    early = await running(db, "any news?")
    assert await taken_up(db, early) == ids(sent.outs[0])
    await settled(db, early)
    await ends(db, sent.outs[1])
    assert (await briefing(db, f"nudge:{sent.batch}:1"))[1] == ids(sent.outs[1])


@story
async def test_a_user_s_turn_that_took_up_everything_leaves_nothing_for_a_nudge(db: Database) -> None:
    sent = await fan(db, 2, closed=False)
    await ends(db, sent.outs[0])
    await ends(db, sent.outs[1])
    await taken_up(db, sent.turn)
    await settled(db, sent.turn)
    assert await nudges(db) == []
    assert {(await fresh(db, out.job)).delivery for out in sent.outs} == {"delivered"}


@story
async def test_a_held_member_waits_for_its_batch_in_a_turn_that_outrider_began(db: Database) -> None:
    """Ruled: only a turn of the user's takes a held member early."""
    sent = await fan(db, 2)
    await ends(db, sent.outs[0])
    alone = await ended_job(db)
    turn, told = await briefing(db, f"nudge:{alone.batch_id}:1")
    assert told == [alone.id]
    await settled(db, turn)
    assert (await fresh(db, sent.outs[0].job)).delivery == "pending"
    assert await taken_up(db, await running(db)) == ids(sent.outs[0])


# -- looking


@story
async def test_another_s_batch_does_not_exist(db: Database) -> None:
    sent = await fan(db, 1)
    for owner, batch in (("bob", sent.batch), (OWNER, "nowhere")):
        with pytest.raises(Fault, match="There is no such batch"):
            await db.read(batches.get, owner, batch)


@story
async def test_a_turn_that_sent_nothing_out_has_no_batch(db: Database) -> None:
    turn = await running(db)
    await settled(db, turn)
    await submitted(db)
    assert await value(db, "select count(*) from batches") == 0
