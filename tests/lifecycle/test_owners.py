"""Whose it is: another user's session, task and job do not exist, and another's id is never taken over."""

from typing import Any

import pytest

from background import job_rows, results, retention, sessions, snapshots, tasks
from background.database import Database, Tx
from background.errors import Fault
from tests.background.factories import OWNER, ended, ended_job, message, running, settled, submitted
from tests.background.story import everything, story, value
from tests.support.clock import Clock

BOB = "bob"


def exported(tx: Tx, owner: str = OWNER) -> Any:
    return snapshots.export(tx, sessions.get(tx, owner, "s"))


@story
async def test_a_snapshot_of_anothers_session_gets_ids_of_its_own(db: Database, clock: Clock) -> None:
    """F163: whoever made it keeps what is theirs, and taking it in twice is taking it in once."""
    task = await ended(db, text="Alice's answer.")
    snapshot = await db.read(exported)
    mine = await db.write(snapshots.load, BOB, snapshot)
    (copy,) = await db.read(tasks.ended_of_session, mine.uid)
    assert copy["id"] != task.id and mine.uid != task.session
    kept = await db.read(results.read_many, [task.id, copy["id"]])
    assert [result.text for result in kept.values()] == ["Alice's answer."] * 2
    before = everything(db.path)
    assert (await db.write(snapshots.load, BOB, snapshot)).uid == mine.uid
    assert everything(db.path)["tasks"] == before["tasks"] and everything(db.path)["results"] == before["results"]
    assert await db.read(tasks.find, BOB, task.id) is None


@story
async def test_another_result_of_the_same_task_never_replaces_the_first(db: Database, clock: Clock) -> None:
    """F163: sealed as it should be, and still not taken."""
    task = await ended(db, text="The first answer.")
    snapshot = await db.read(exported)
    place = f"snapshot.results.{task.id}.artifacts"
    other = results.encode([{"artifactId": "a", "parts": [{"text": "Another answer."}]}])

    def sealed(tx: Tx) -> str:
        return snapshots._Seal(tx, "s").close(place.removeprefix("snapshot."), other) or ""

    snapshot["results"][task.id]["artifacts"] = await db.read(sealed)
    await db.write(snapshots.load, OWNER, snapshot)
    assert ((await db.read(results.read, task.id)) or results.Result([])).text == "The first answer."
    fresh = await db.write(snapshots.load, OWNER, snapshot, "elsewhere")
    (copy,) = await db.read(tasks.ended_of_session, fresh.uid)
    assert ((await db.read(results.read, copy["id"])) or results.Result([])).text == "Another answer."


@story
async def test_erasing_one_users_session_leaves_anothers_of_the_same_id(db: Database, clock: Clock) -> None:
    """F159: rows of one are never the other's, also where a session id is the same."""
    await ended_job(db)
    turn = await running(db, owner=BOB)
    await settled(db, turn)
    waiting = await submitted(db, owner=BOB)
    kept = {table: await _of_bob(db, table) for table in ("tasks", "sessions", "views")}
    assert all(kept.values())
    await db.write(lambda tx: retention.erase_session(tx, sessions.get(tx, OWNER, "s")))
    assert {table: await _of_bob(db, table) for table in kept} == kept
    assert await value(db, "select count(*) from tasks") == len(kept["tasks"])
    assert (await db.read(tasks.by_id, waiting.id)).state == "submitted"


async def _of_bob(db: Database, table: str) -> list[dict[str, Any]]:
    return await db.read(lambda tx: [dict(row) for row in tx.q(f"select * from {table} where owner = 'bob'")])


@story
async def test_anothers_report_is_not_erased(db: Database, clock: Clock) -> None:
    job = await ended_job(db)
    before = everything(db.path)
    with pytest.raises(Fault) as caught:
        await db.write(retention.erase_report, BOB, job.id, str)
    assert caught.value.kind == "not_found" and everything(db.path) == before
    assert not (await db.read(job_rows.by_id, job.id)).erased


@story
async def test_a_task_id_that_a_stranger_holds_is_not_taken_over_by_a_message(db: Database, clock: Clock) -> None:
    """An imported id is one more id: what its holder does with it never reaches the other's task."""
    task = await ended(db)
    snapshot = await db.read(exported)
    await db.write(lambda tx: retention.erase_session(tx, sessions.get(tx, OWNER, "s")))
    mine = await db.write(snapshots.load, BOB, snapshot)
    (held,) = await db.read(tasks.ended_of_session, mine.uid)
    assert held["id"] == task.id
    back = await db.write(snapshots.load, OWNER, snapshot)
    (again,) = await db.read(tasks.ended_of_session, back.uid)
    assert again["id"] != task.id
    assert message().owner == OWNER and await db.read(tasks.find, OWNER, task.id) is None
