"""F171: what is counted over restarts and processes, and that a figure costs what waits and not what is stored."""

from background import delivery, queue, tallies, worker
from background.database import Database
from tests.background.factories import claimed, ended_job, ends, fan, running, settled, taken_up
from tests.background.story import opened, plans, story
from tests.support.clock import Clock


@story
async def test_f171_lost_leases_and_failed_tries_are_counted_in_the_registry(db: Database, clock: Clock) -> None:
    run = await claimed(db)
    await db.write(queue.release, run, error="not now")
    await claimed(db)
    clock.advance(db.limits.lease / 1e6 + 1)
    await db.write(worker.sweep, "other")
    handed_back = await claimed(db)
    await db.write(queue.release, handed_back, counts=False)
    async with opened(db.path, clock) as another:
        assert await another.read(tallies.counted, "lost_leases") == {"report": 1}
        assert await another.read(tallies.counted, "failed_tries") == {"report": 2}
        assert await another.read(tallies.counted, "index_failures") == {}


@story
async def test_f171_a_batch_is_held_while_some_have_ended_and_others_have_not(db: Database) -> None:
    sent = await fan(db, 2)
    assert await db.read(delivery.held_batches) == 0
    await ends(db, sent.outs[0])
    assert await db.read(delivery.held_batches) == 1
    assert (await db.read(delivery.undelivered))["count"] == 1
    await ends(db, sent.outs[1])
    assert await db.read(delivery.held_batches) == 0
    assert (await db.read(delivery.undelivered))["count"] == 2


@story
async def test_what_was_told_costs_no_figure_anything(db: Database) -> None:
    """The sum of what waits is read from an index that holds nothing else."""
    job = await ended_job(db)
    turn = await running(db)
    assert await taken_up(db, turn) == [job.id]
    await settled(db, turn)
    for figure in (delivery.undelivered, delivery.held_batches):
        steps = await db.read(plans, figure)
        first = next(step for step in steps if step.startswith(("SCAN", "SEARCH")))
        assert "deliveries_untold" in first, steps
