"""The ledger: what came to nothing is seen, told again by the rules of any delivery, or given up by somebody's name."""

import pytest

from background import delivery, ledger
from background.database import Database, Tx
from background.errors import Fault
from background.ledger import Entry
from tests.background.factories import OWNER, ended_job, ends, fan, nudges, running, settled, taken_up
from tests.background.story import story


def discarded(tx: Tx, owner: str, job_id: str) -> Entry:
    return ledger.discard(tx, owner, job_id, "ann")


async def entry(db: Database, job_id: str) -> Entry:
    return await db.read(ledger.get, OWNER, job_id)


async def given_up(db: Database) -> str:
    """The id of a job that turn after turn has failed to tell of."""
    job = await ended_job(db)
    for _ in range(delivery.GIVE_UP_AFTER):
        turn = await running(db)
        assert await taken_up(db, turn) == [job.id]
        await settled(db, turn, "failed")
    assert (await entry(db, job.id)).state == "undeliverable"
    return job.id


@story
async def test_what_was_given_up_is_told_once_more_and_once(db: Database) -> None:
    job_id = await given_up(db)
    again = await db.write(ledger.replay, OWNER, job_id)
    assert (again.state, again.failed_turns) == ("pending", 0)
    assert [key for key in await nudges(db) if f":replay:{job_id}." in key]
    with pytest.raises(Fault, match="waits to be told"):
        await db.write(ledger.replay, OWNER, job_id)
    turn = await running(db)
    assert await taken_up(db, turn) == [job_id]
    for change in (ledger.replay, discarded):
        with pytest.raises(Fault, match="telling of it just now"):
            await db.write(change, OWNER, job_id)
    await settled(db, turn)
    for change in (ledger.replay, discarded):
        with pytest.raises(Fault, match="It was told"):
            await db.write(change, OWNER, job_id)
    assert await taken_up(db, await running(db)) == []


@story
async def test_what_is_discarded_bears_the_name_of_who_did_and_is_told_by_nobody(db: Database) -> None:
    job = await ended_job(db)
    done = await db.write(ledger.discard, OWNER, job.id, "ann")
    assert (done.state, done.discarded_by, done.last_error) == ("discarded", "ann", "Discarded by ann.")
    assert await taken_up(db, await running(db)) == []
    with pytest.raises(Fault, match="discarded by ann"):
        await db.write(ledger.discard, OWNER, job.id, "bob")
    again = await db.write(ledger.replay, OWNER, job.id)
    assert (again.state, again.discarded_by, again.discarded_at) == ("pending", None, None)


@story
async def test_one_that_is_held_for_its_batch_goes_on_waiting_for_it(db: Database) -> None:
    sent = await fan(db, 2)
    first = await ends(db, sent.outs[0])
    await db.write(ledger.discard, OWNER, first.id, "ann")
    before = await nudges(db)
    await db.write(ledger.replay, OWNER, first.id)
    assert await nudges(db) == before
    await ends(db, sent.outs[1])
    assert len(await nudges(db)) == len(before) + 1


@story
async def test_the_ledger_is_its_owner_s_and_narrows_by_state(db: Database) -> None:
    job_id = await given_up(db)
    other = await ended_job(db)
    await db.write(ledger.discard, OWNER, other.id, "ann")
    found = {
        state: [one.job_id for one in await db.read(ledger.page, OWNER, 9, state=state)] for state in ledger.STATES
    }
    assert found == {"pending": [], "attached": [], "delivered": [], "undeliverable": [job_id], "discarded": [other.id]}
    newest, *older = await db.read(ledger.page, OWNER, 9)
    at = (newest.job_created_at, newest.job_id)
    assert [one.job_id for one in older] == [one.job_id for one in await db.read(ledger.page, OWNER, 9, before=at)]
    assert await db.read(ledger.page, "another", 9) == []
    for change in (ledger.get, ledger.replay):
        with pytest.raises(Fault, match="no such job"):
            await db.write(change, "another", job_id)
