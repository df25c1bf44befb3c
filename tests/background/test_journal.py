"""The read side: brought to the committed revision, the same however often, and made again from the rows."""

import asyncio

import pytest

from background import journal, tasks, terminal
from background.database import Database, Tx
from background.errors import StorageUnavailable
from background.journal import Event
from background.states import A2A
from tests.background.asking import answered, parked, question
from tests.background.factories import (
    OWNER,
    artifact,
    begun,
    ended,
    ended_job,
    nudged,
    nudges,
    outcome,
    running,
    settled,
    submitted,
)
from tests.background.story import comes_true, everything, opened, rows, story, until, value
from tests.support.clock import Clock


async def project(db: Database) -> int:
    return await db.write(journal.project)


async def seen(db: Database, task_id: str) -> str:
    view = await db.read(journal.view, OWNER, task_id)
    assert view is not None
    return view.state


def read_side(db: Database) -> dict[str, list[tuple[object, ...]]]:
    stored = everything(db.path)
    return {name: stored[name] for name in ("views", "journal", "revisions")}


async def lives(db: Database, clock: Clock) -> list[str]:
    """One task of each kind of life; their ids."""
    made = [(await submitted(db, session_id="waits")).id, (await running(db, session_id="works")).task.id]
    for state in ("completed", "failed", "canceled"):
        clock.advance(1)
        made.append((await ended(db, state, session_id=state)).id)
    many = await running(db, session_id="many")
    await db.write(terminal.settle, many.run, outcome(artifacts=[artifact(str(number)) for number in range(3)]))
    await settled(db, await running(db, session_id="none"), text="")
    await ended_job(db)
    turn = await running(db)
    await db.write(terminal.fold, await nudged(db, (await nudges(db))[0]), turn.task)
    await answered(db, await parked(db, session_id="asked"))
    await answered(db, await parked(db, question("form"), session_id="filled in"), data={"size": 3})
    made += [(await parked(db, question(kind), session_id=kind)).task.id for kind in ("question", "approval", "auth")]
    told = await running(db, session_id="told in pieces")
    for piece in ("One, ", "two"):
        await db.write(tasks.fragment, told.run, piece)
    return [*made, many.task.id, told.task.id]


# -- projecting


@story
async def test_what_is_held_back_shows_the_task_as_it_was_and_never_half_of_what_it_is(db: Database) -> None:
    """The run is completed, and until it is projected its readers see it at work."""
    turn = await running(db)
    await project(db)
    await settled(db, turn, text="The answer.")
    assert await value(db, "select state from tasks") == "completed"
    view = await db.read(journal.view, OWNER, turn.task.id)
    assert view is not None
    assert (view.state, view.ended, view.result, view.reason) == ("working", False, None, None)
    assert await db.read(journal.after, turn.task.id, view.revision) == []
    await project(db)
    view = await db.read(journal.view, OWNER, turn.task.id)
    assert view is not None
    assert (view.state, view.ended) == ("completed", True)
    assert view.result is not None
    assert view.result.text == "The answer."


@story
async def test_projecting_again_changes_nothing(db: Database, clock: Clock) -> None:
    made = await lives(db, clock)
    while await project(db):
        pass
    before = read_side(db)
    for _ in range(3):
        clock.advance(1)
        for task_id in made:
            await db.write(Tx.x, "update revisions set projected = 0 where task_id = :id", id=task_id)
        while await project(db):
            pass
    assert read_side(db) == before


@story
async def test_the_whole_read_side_can_be_made_again_from_the_rows(db: Database, clock: Clock) -> None:
    await lives(db, clock)
    while await project(db):
        pass
    before = read_side(db)

    def lose(tx: Tx) -> None:
        tx.x("delete from views")
        tx.x("delete from journal")
        tx.x("update revisions set projected = 0")

    await db.write(lose)
    clock.advance(3600)
    while await project(db):
        pass
    assert read_side(db) == before


@story
async def test_a_long_backlog_is_brought_up_in_pieces(db: Database) -> None:
    for number in range(journal.BATCH + 5):
        await db.write(terminal.cancel_task, await submitted(db, session_id=f"s{number}"), "user")
    assert [await project(db) for _ in range(3)] == [journal.BATCH, 5, 0]
    states = await rows(db, "select distinct state from views")
    assert states == [{"state": "canceled"}]


@story
async def test_revisions_that_were_missed_are_all_told_in_order(db: Database, clock: Clock) -> None:
    task = await submitted(db)
    clock.advance(1)
    turn = await begun(db, task)
    clock.advance(1)
    await settled(db, turn, text="The answer.")
    await project(db)
    told = await db.read(journal.after, task.id, 0)
    start = clock() - 2_000_000
    assert [(event.revision, event.number, event.state, event.at) for event in told] == [
        (1, 0, "submitted", start),
        (2, 0, "working", start + 1_000_000),
        (3, 0, "completed", start + 2_000_000),
        (3, 1, "completed", start + 2_000_000),
    ]


# -- reading on


@story
async def test_artifacts_come_before_the_end_and_are_the_result_s_own(db: Database) -> None:
    turn = await running(db)
    given = [artifact(str(number)) for number in range(3)]
    await db.write(terminal.settle, turn.run, outcome(artifacts=given))
    await project(db)
    told = await db.read(journal.after, turn.task.id, 2)
    assert [event.artifact for event in told] == [*given, None]
    assert {event.state for event in told} == {"completed"}
    kinds = await rows(db, "select kind from journal where revision = 3 order by number")
    assert [row["kind"] for row in kinds] == ["artifact", "artifact", "artifact", "status"]


@pytest.mark.parametrize("state", ["failed", "canceled"])
@story
async def test_an_end_without_a_result_tells_no_artifact(db: Database, state: str) -> None:
    """A108: nothing poses as the answer; what text there was is in the view."""
    turn = await running(db)
    await settled(db, turn, state, "Half an ans")
    await project(db)
    told = await db.read(journal.after, turn.task.id, 2)
    assert [(event.state, event.artifact) for event in told] == [(state, None)]
    view = await db.read(journal.view, OWNER, turn.task.id)
    assert view is not None
    assert (view.reason, view.result.text if view.result else None) == (
        ("MODEL_FAILED", "Half an ans") if state == "failed" else (None, "")
    )


@story
async def test_whoever_reads_from_a_view_on_misses_nothing_and_sees_nothing_twice(db: Database) -> None:
    """A36: wherever the reader comes in, view and later events are the whole."""
    task = await submitted(db)
    stages = [await _whole(db, task.id)]
    turn = await begun(db, task)
    await project(db)
    stages.append(await _whole(db, task.id))
    cuts = [await db.read(journal.view, OWNER, task.id)]
    await settled(db, turn)
    await project(db)
    stages.append(await _whole(db, task.id))
    cuts.append(await db.read(journal.view, OWNER, task.id))
    for cut, known in zip(cuts, stages[1:], strict=True):
        assert cut is not None
        assert known + await db.read(journal.after, task.id, cut.revision) == stages[-1]
    assert [len(stage) for stage in stages] == [1, 2, 4]


async def _whole(db: Database, task_id: str) -> list[Event]:
    return await db.read(journal.after, task_id, 0)


@story
async def test_every_state_has_a_time_and_a_name_in_the_protocol(db: Database, clock: Clock) -> None:
    """A18."""
    await lives(db, clock)
    while await project(db):
        pass
    found = await rows(db, "select state, at from views")
    assert {row["state"] for row in found} == set(A2A)
    assert all(row["at"] > 0 for row in found)


@story
async def test_a_task_folded_into_another_says_so_only_once_it_is_seen_as_ended(db: Database) -> None:
    await ended_job(db)
    turn = await running(db)
    nudge = await nudged(db, (await nudges(db))[0])
    await db.write(terminal.fold, nudge, turn.task)
    before = await db.read(journal.view, OWNER, nudge.id)
    await project(db)
    after = await db.read(journal.view, OWNER, nudge.id)
    assert before is not None
    assert after is not None
    assert (before.folded_into, after.folded_into) == (None, turn.task.id)


# -- the projector


@story
async def test_the_projector_is_woken_by_each_change_and_wakes_who_waits_for_the_task(db: Database) -> None:
    projector = asyncio.create_task(journal.run_projector(db, poll_s=60))
    turn = await running(db)
    with db.bell.listen(f"view:{turn.task.id}") as ear:
        await settled(db, turn)
        async with asyncio.timeout(5):
            while await seen(db, turn.task.id) != "completed":
                await ear.wait()
    projector.cancel()


@story
async def test_the_projector_takes_up_what_was_left_when_it_starts(db: Database) -> None:
    task = await ended(db)
    projector = asyncio.create_task(journal.run_projector(db, poll_s=60))
    await comes_true(db, "select state = 'completed' from views where task_id = :id", id=task.id)
    projector.cancel()


@story
async def test_the_projector_of_one_process_shows_what_another_changed(db: Database, clock: Clock) -> None:
    projector = asyncio.create_task(journal.run_projector(db, poll_s=60))
    async with opened(db.path, clock) as other:
        task = await ended(other)
        await comes_true(db, "select state = 'completed' from views where task_id = :id", id=task.id)
    projector.cancel()


@story
async def test_two_projectors_on_one_file_are_as_good_as_one(db: Database, clock: Clock) -> None:
    async with opened(db.path, clock) as other:
        projectors = [asyncio.create_task(journal.run_projector(home, poll_s=0.05)) for home in (db, other)]
        for _ in range(10):
            await ended(db)
            await ended(other)
        await comes_true(db, "select not exists (select 1 from revisions where projected = 0)")
        for projector in projectors:
            projector.cancel()
    once = read_side(db)
    await db.write(Tx.x, "update revisions set projected = 0")
    while await project(db):
        pass
    assert read_side(db) == once


@story
async def test_the_projector_outlives_a_storage_that_cannot_be_written_for_a_while(
    db: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    task = await ended(db)
    whole = Database.write_along
    broken = True

    async def write_along(self: Database, *args: object, **kwargs: object) -> object:
        if broken:
            raise StorageUnavailable("database or disk is full")
        return await whole(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Database, "write_along", write_along)
    projector = asyncio.create_task(journal.run_projector(db, poll_s=0.01))
    await until(lambda: "waits for the storage" in caplog.text)
    broken = False
    await comes_true(db, "select state = 'completed' from views where task_id = :id", id=task.id)
    projector.cancel()
