"""What commits together: whichever statement of it fails, nothing of it is stored, nobody is told, and it can be done again."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from background import acceptance, batches, delivery, expenses, jobs, journal, queue, sessions, tasks, terminal, worker
from background.database import Database, Tx
from background.errors import StorageUnavailable
from background.limits import MINUTE
from background.queue import Run
from background.usage import Usage
from tests.background.asking import answered, parked, question
from tests.background.factories import (
    OWNER,
    at_work,
    briefing,
    brought_to_end,
    claimed,
    dispatched,
    ended_job,
    fan,
    heard_of,
    message,
    nudged,
    nudges,
    outcome,
    running,
    running_job,
    sent_by_api,
    sent_out,
    settled,
    spec,
    submitted,
    take,
    taken_up,
)
from tests.background.story import Unlucky, everything, story
from tests.support.clock import Clock

Move = Callable[[Tx], Any]
TOPICS = ("runs", "revisions", "events", "ended")


class _Undone(Exception):
    """Takes back what was done only to be counted."""


async def all_or_nothing(db: Database, move: Move) -> int:
    """Does it, after it has failed at each of its statements in turn. Returns how many there are."""

    def count(tx: Tx) -> None:
        counted = Unlucky(tx)
        move(counted)
        raise _Undone(counted.statements)

    with pytest.raises(_Undone) as undone:
        await db.write(count)
    statements = undone.value.args[0]
    before = everything(db.path)
    with db.bell.listen(*TOPICS) as ear:
        for number in range(statements):
            with pytest.raises(StorageUnavailable, match="full"):
                await db.write(lambda tx, number=number: move(Unlucky(tx, number)))
            assert everything(db.path) == before, f"statement {number} of {statements}"
        assert not await ear.wait(0)
    await db.write(move)
    assert everything(db.path) != before
    return statements


# Each comes with what was before, and gives what is then done.


async def _accept(db: Database, clock: Clock) -> Move:
    await heard_of(db)
    sent = message()
    return lambda tx: acceptance.accept(tx, sent)


async def _accept_a_job_s_post(db: Database, clock: Clock) -> Move:
    (job,) = await sent_by_api(db)
    await heard_of(db)
    sent = message(session_id=f"background:{job.id}", origin="background", cause=job.id)
    return lambda tx: acceptance.accept(tx, sent)


async def _begin(db: Database, clock: Clock) -> Move:
    task = await submitted(db)
    run = await db.write(take, "task_id", task.id)
    return lambda tx: tasks.begin(tx, run)


async def _begin_a_job(db: Database, clock: Clock) -> Move:
    (job,) = await sent_by_api(db)
    task = await dispatched(db, job)
    run = await db.write(take, "task_id", task.id)
    return lambda tx: tasks.begin(tx, run)


async def _checkpoint(db: Database, clock: Clock) -> Move:
    turn = await running(db)
    clock.advance(1)
    return lambda tx: tasks.checkpoint(tx, turn.run, "model:1", "[]")


async def _charge_a_job(db: Database, clock: Clock) -> Move:
    out = await running_job(db)
    return lambda tx: expenses.charge(tx, out.turn.task, Usage(1, 2, 3, 4))


async def _spawn(db: Database, clock: Clock) -> Move:
    turn = await running(db)
    session = await db.read(sessions.by_uid, turn.task.session)
    specs = [(f"key {number}", spec()) for number in range(3)]
    return lambda tx: jobs.spawn(tx, session, turn.task.id, specs, closed=False)


async def _settle_a_turn_that_tells_and_has_sent_out(db: Database, clock: Clock) -> Move:
    turn = await _turn_with_everything(db)
    return lambda tx: terminal.settle(tx, turn, outcome("completed"))


async def _settle_one_that_failed(db: Database, clock: Clock) -> Move:
    turn = await _turn_with_everything(db)
    return lambda tx: terminal.settle(tx, turn, outcome("failed"))


async def _turn_with_everything(db: Database) -> Run:
    """It has taken up two ends, and has sent out one job whose report is in and one that is out."""
    await ended_job(db)
    await ended_job(db, "failed")
    turn = await running(db)
    assert len(await taken_up(db, turn)) == 2
    first, second = await sent_out(db, turn, "first", "second")
    await brought_to_end(db, first)
    await at_work(db, second)
    return turn.run


async def _settle_a_job(db: Database, clock: Clock) -> Move:
    out = await running_job(db)
    return lambda tx: terminal.settle(tx, out.turn.run, outcome())


async def _cancel_a_turn(db: Database, clock: Clock) -> Move:
    await ended_job(db)
    turn = await running(db)
    await taken_up(db, turn)
    await submitted(db, "waits behind it")
    return lambda tx: terminal.cancel_task(tx, turn.task, "user")


async def _cancel_a_queued_job(db: Database, clock: Clock) -> Move:
    (job,) = await sent_by_api(db)
    return lambda tx: terminal.cancel_job(tx, job, "user")


async def _cancel_a_running_job(db: Database, clock: Clock) -> Move:
    out = await running_job(db)
    return lambda tx: terminal.cancel_job(tx, out.job, "agent")


async def _fold(db: Database, clock: Clock) -> Move:
    await ended_job(db)
    turn = await running(db)
    (key,) = await nudges(db)
    nudge = await nudged(db, key)
    return lambda tx: terminal.fold(tx, nudge, turn.task)


async def _report_done_and_join(db: Database, clock: Clock) -> Move:
    out = (await fan(db, 1)).outs[0]
    await settled(db, out.turn)
    return lambda tx: jobs.report_done(tx, out.job.id, 1)


async def _past_the_deadline(db: Database, clock: Clock) -> Move:
    sent = await fan(db, 2)
    await settled(db, sent.outs[0].turn)
    await db.write(delivery.ready, sent.outs[0].job.id, 1)
    return lambda tx: batches.past_deadline(tx, sent.batch)


async def _attach(db: Database, clock: Clock) -> Move:
    job = await ended_job(db)
    turn = await running(db)
    return lambda tx: delivery.attach(tx, turn.task.id, job.id)


async def _retry(db: Database, clock: Clock) -> Move:
    job = await ended_job(db, "failed")
    return lambda tx: jobs.retry(tx, OWNER, job.id)


async def _retry_of_one_that_others_waited_for(db: Database, clock: Clock) -> Move:
    sent = await fan(db, 2)
    for out in sent.outs:
        await settled(db, out.turn)
    await db.write(jobs.report_done, sent.outs[0].job.id, 1)
    return lambda tx: jobs.retry(tx, OWNER, sent.outs[1].job.id)


async def _sweep(db: Database, clock: Clock) -> Move:
    await running(db)
    clock.advance(2 * db.limits.resume_max_age / 1_000_000)
    await running(db, session_id="another", worker="dead")
    await claimed(db, "follow-up", "dead")
    clock.advance(31)
    await heard_of(db, "sweeper")
    return lambda tx: worker.sweep(tx, "sweeper")


async def _project(db: Database, clock: Clock) -> Move:
    await settled(db, await running(db))
    return journal.project


async def _settle_a_briefing(db: Database, clock: Clock) -> Move:
    await ended_job(db)
    (key,) = await nudges(db)
    turn, told = await briefing(db, key)
    assert len(told) == 1
    return lambda tx: terminal.settle(tx, turn.run, outcome())


async def _release(db: Database, clock: Clock) -> Move:
    run = await claimed(db)
    return lambda tx: queue.release(tx, run, error="the store failed")


async def _park(db: Database, clock: Clock) -> Move:
    turn = await running(db)
    deadline = clock() + MINUTE
    return lambda tx: terminal.park(tx, turn.run, question("form"), deadline=deadline)


async def _park_a_job(db: Database, clock: Clock) -> Move:
    out = await running_job(db)
    return lambda tx: terminal.park(tx, out.turn.run, question("approval"))


async def _answer(db: Database, clock: Clock) -> Move:
    turn = await parked(db, question("form"), deadline=clock() + MINUTE)
    await submitted(db, "waits behind it")
    sent = message(task_id=turn.task.id, data={"size": 3})
    return lambda tx: acceptance.accept(tx, sent)


async def _answer_a_job_s_question(db: Database, clock: Clock) -> Move:
    turn = await parked(db, turn=(await running_job(db)).turn)
    sent = message(task_id=turn.task.id, session_id=turn.task.session_id)
    return lambda tx: acceptance.accept(tx, sent)


async def _begin_an_answer_anew_after_a_question(db: Database, clock: Clock) -> Move:
    turn = await running(db)
    await db.write(tasks.fragment, turn.run, "One, ")
    turn = await parked(db, turn=turn)
    await answered(db, turn)
    run = await db.write(take, "task_id", turn.task.id)
    await db.write(tasks.begin, run)
    return lambda tx: tasks.fragment(tx, run, "Uno, ", anew=True)


async def _expire(db: Database, clock: Clock) -> Move:
    turn = await parked(db, deadline=clock() + MINUTE)
    await submitted(db, "waits behind it")
    clock.advance(60)
    return lambda tx: terminal.expire(tx, turn.task.id, 3)


async def _expire_a_job_s_question(db: Database, clock: Clock) -> Move:
    turn = await parked(db, turn=(await running_job(db)).turn, deadline=clock() + MINUTE)
    clock.advance(60)
    return lambda tx: terminal.expire(tx, turn.task.id, 3)


async def _cancel_a_parked_turn(db: Database, clock: Clock) -> Move:
    turn = await parked(db, deadline=clock() + MINUTE)
    await submitted(db, "waits behind it")
    return lambda tx: terminal.cancel_task(tx, turn.task, "user")


async def _a_piece_of_an_answer(db: Database, clock: Clock) -> Move:
    turn = await running(db)
    return lambda tx: tasks.fragment(tx, turn.run, "One, ")


async def _scrub(db: Database, clock: Clock) -> Move:
    turn = await running(db)
    await db.write(tasks.fragment, turn.run, "One, ")
    turn = await parked(db, turn=turn)
    return lambda tx: terminal.scrub(tx, turn.task.id)


TRANSACTIONS: list[Callable[[Database, Clock], Awaitable[Move]]] = [
    _accept,
    _accept_a_job_s_post,
    _begin,
    _begin_a_job,
    _checkpoint,
    _charge_a_job,
    _spawn,
    _settle_a_turn_that_tells_and_has_sent_out,
    _settle_one_that_failed,
    _settle_a_job,
    _settle_a_briefing,
    _cancel_a_turn,
    _cancel_a_queued_job,
    _cancel_a_running_job,
    _fold,
    _report_done_and_join,
    _past_the_deadline,
    _attach,
    _retry,
    _retry_of_one_that_others_waited_for,
    _sweep,
    _project,
    _release,
    _park,
    _park_a_job,
    _answer,
    _answer_a_job_s_question,
    _begin_an_answer_anew_after_a_question,
    _expire,
    _expire_a_job_s_question,
    _cancel_a_parked_turn,
    _a_piece_of_an_answer,
    _scrub,
]


@pytest.mark.parametrize("prepare", TRANSACTIONS, ids=[prepare.__name__[1:] for prepare in TRANSACTIONS])
@story
async def test_all_of_it_or_nothing(
    db: Database, clock: Clock, prepare: Callable[[Database, Clock], Awaitable[Move]]
) -> None:
    """A11 and its kind: a row without its run, an end without its result, a job without its batch."""
    move = await prepare(db, clock)
    assert await all_or_nothing(db, move) > 0
