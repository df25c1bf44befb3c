"""Whatever happens, in whatever order: no end is lost, none is told twice, and no move is made that is not drawn."""

import random

import pytest

from background import delivery
from background.database import Database
from background.limits import SECOND
from background.states import DELIVERY, INTERRUPTED, JOB, RUN, TASK, TASK_ENDS
from tests.background.factories import running, settled, taken_up
from tests.background.story import opened, rows, within
from tests.background.walk import CHATS, Walk, watch
from tests.support.clock import Clock

STEPS = 320
MACHINES = {"tasks": TASK, "runs": RUN, "jobs": JOB, "deliveries": DELIVERY}


async def moves_that_are_not_drawn(db: Database) -> list[tuple[str, str, str]]:
    found = await rows(db, "select distinct machine, before, after from moves")
    moves = [(row["machine"], row["before"], row["after"]) for row in found]
    return [move for move in moves if move[2] not in MACHINES[move[0]][move[1]].values()]


async def disagreements(db: Database) -> list[dict[str, object]]:
    """Tasks whose run, job, view, result or batch says something else than they do."""
    of_run = " ".join(f"when '{end}' then '{run}'" for end, run in TASK_ENDS.items())
    return await rows(
        db,
        "select t.id, t.state, r.state as run, j.status as job, v.state as view, x.task_id as result from tasks t "
        "left join runs r on r.id = (select max(id) from runs where task_id = t.id) left join views v on v.task_id = t.id "
        "left join results x on x.task_id = t.id left join jobs j on j.task_id = t.id "
        f"where t.ended_at is null or r.state <> case t.state {of_run} end or (j.id is not null and j.status <> t.state) "
        "or v.state <> t.state or v.revision <> t.revision or x.task_id is null",
    )


every_seed = pytest.mark.parametrize("seed", range(4))


@every_seed
@within(batch_join_timeout=300 * SECOND)
async def test_after_any_walk_everything_is_told_once_and_agrees(db: Database, clock: Clock, seed: int) -> None:
    await walked(db, clock, seed)


@every_seed
@within(batch_join_timeout=10**8 * SECOND)
async def test_no_batch_needs_its_deadline_to_be_told(db: Database, clock: Clock, seed: int) -> None:
    await walked(db, clock, seed)


async def walked(db: Database, clock: Clock, seed: int) -> None:
    await db.write(watch)
    async with opened(db.path, clock, batch_join_timeout=db.limits.batch_join_timeout) as other:
        walk = Walk((db, other), clock, random.Random(seed))
        for _ in range(STEPS):
            await walk.step()
        await walk.rest()
    assert await moves_that_are_not_drawn(db) == []
    assert await disagreements(db) == []
    assert await rows(db, "select task_id from questions where answered_at is null") == []
    assert await rows(db, "select lane from runs where ended_at is null and lane is not null") == []
    seen = {row["after"] for row in await rows(db, "select distinct after from moves where machine = 'tasks'")}
    assert seen & set(INTERRUPTED), "nothing was parked, and the walk shows nothing of it"
    await _every_end_was_told_or_waits_for_its_user(db, walk)
    for chat in CHATS:
        turn = await running(db, "What else?", session_id=chat)
        told = await taken_up(db, turn)
        await settled(db, turn)
        walk.told.update([(job_id, await _attempt(db, job_id)) for job_id in told])
    await _each_was_told_once(db, walk)


async def _attempt(db: Database, job_id: str) -> int:
    return (await rows(db, "select attempts from jobs where id = :id", id=job_id))[0]["attempts"]


async def _every_end_was_told_or_waits_for_its_user(db: Database, walk: Walk) -> None:
    """Nothing waits for somebody who will not come: what its user canceled, or a turn that he canceled had taken up."""
    waiting = await rows(
        db,
        "select d.job_id, j.canceled_by from deliveries d join jobs j on j.id = d.job_id "
        "where d.state in ('pending', 'attached')",
    )
    assert [row for row in waiting if row["canceled_by"] != "user" and row["job_id"] not in walk.let_go] == []


async def _each_was_told_once(db: Database, walk: Walk) -> None:
    ends = await rows(
        db,
        "select d.*, unsealed('deliveries.last_error', d.job_id || '/' || d.attempt, d.last_error) as why, t.state as told_by "
        "from deliveries d left join tasks t on t.id = d.task_id",
    )
    assert len(ends) > 5
    for end in ends:
        told = walk.told[end["job_id"], end["attempt"]]
        if end["state"] == "delivered":
            assert (told, end["told_by"]) == (1, "completed"), end
        else:
            assert (told, end["state"]) == (0, "undeliverable"), end
            assert end["why"] == "Retried before it was told." or end["failed_turns"] >= delivery.GIVE_UP_AFTER
    completed = await rows(
        db,
        "select j.id, j.attempts, (select count(*) from events where name = 'background.completed' "
        "and unsealed('events.data', session || '/' || uid, data) like '%\"id\": \"' || j.id || '\"%') as events from jobs j",
    )
    assert {row["id"] for row in completed if row["events"] != row["attempts"]} == set()
