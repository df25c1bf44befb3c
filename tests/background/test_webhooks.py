"""Webhooks in the registry: whose they are, which events they are called with, in which order, and how they end."""

import json
from typing import Any

import pytest

from background import journal, queue, webhooks
from background.database import Database, Tx
from background.errors import Fault
from background.queue import Run
from background.webhooks import Webhook
from tests.background.factories import OWNER, ended, running, settled, submitted
from tests.background.story import plans, rows, story, value

URL = "https://hook.example/"


def hook(task_id: str, name: str = "w", **more: str) -> Webhook:
    return Webhook(task_id, name, more.pop("owner", OWNER), URL, **more)  # type: ignore[arg-type]


async def put(db: Database, *hooks: Webhook) -> None:
    for each in hooks:
        await db.write(webhooks.put, each)


async def called(db: Database, name: str = "w") -> list[str]:
    """The events that a webhook is called with, in order."""
    found = await rows(db, "select params from runs where kind = 'push' order by id")
    calls = [json.loads(row["params"]) for row in found]
    return [f"{call['revision']}.{call['number']}" for call in calls if call["webhook"] == name]


async def claim(db: Database) -> list[Run]:
    return await db.write(queue.claim, "w", "push", 10)


@story
async def test_a_webhook_is_called_with_what_the_projector_shows_and_not_before(db: Database) -> None:
    """F082, F088: the end is committed, and nobody is told before the journal has it; then in the journal's commit."""
    turn = await running(db)
    await db.write(journal.project)
    await put(db, hook(turn.task.id))
    await settled(db, turn)
    assert await called(db) == []
    await db.write(journal.project)
    assert await called(db) == ["3.0", "3.1"]


@story
async def test_projecting_again_calls_nobody_again(db: Database) -> None:
    task = await submitted(db)
    await put(db, hook(task.id))
    await db.write(webhooks.announce, [(task.id, 1, 0)])
    await db.write(webhooks.announce, [(task.id, 1, 0)])
    assert await called(db) == ["1.0"]


@story
async def test_each_webhook_has_a_lane_of_its_own_and_one_call_at_a_time(db: Database) -> None:
    """F084: in order a webhook; one that is slow or dead holds up no other."""
    turn = await running(db)
    await put(db, hook(turn.task.id, "a"), hook(turn.task.id, "b"))
    await settled(db, turn)
    await db.write(journal.project)
    first = await claim(db)
    assert sorted(run.params["webhook"] for run in first) == ["a", "b"]
    assert await claim(db) == []
    (a,) = [run for run in first if run.params["webhook"] == "a"]
    assert await db.write(queue.finish, a)
    (second,) = await claim(db)
    assert second.params["webhook"] == "a" and second.params["revision"] == a.params["revision"] + 1


@story
async def test_a_call_that_is_given_up_is_failed_with_its_error_and_the_next_has_its_turn(db: Database) -> None:
    turn = await running(db)
    await put(db, hook(turn.task.id))
    await settled(db, turn)
    await db.write(journal.project)
    (run,) = await claim(db)
    assert await db.write(webhooks.give_up, run, "no connection came about")
    state, error = await db.read(_state_and_error, run)
    assert (state, error) == ("failed", "no connection came about")
    assert [each.params["revision"] for each in await claim(db)] == [run.params["revision"] + 1]
    assert not await db.write(webhooks.give_up, run, "again"), "another was first"


@story
async def test_a_dead_call_is_listed_until_somebody_discards_it(db: Database) -> None:
    turn = await running(db)
    await put(db, hook(turn.task.id))
    await settled(db, turn)
    await db.write(journal.project)
    (run,) = await claim(db)
    event = f"{run.params['revision']}.{run.params['number']}"
    with pytest.raises(Fault, match="given up as dead"):
        await db.write(webhooks.discard, OWNER, turn.task.id, "w", event, "ann")
    await db.write(webhooks.give_up, run, "no connection came about")
    assert [row["id"] for row in await db.read(webhooks.given_up, OWNER, 9)] == [run.id]
    assert await db.read(webhooks.given_up, "another", 9) == []
    await db.write(webhooks.discard, OWNER, turn.task.id, "w", event, "ann")
    assert await db.read(_state_and_error, run) == ("canceled", "Discarded by ann.")
    assert await db.read(webhooks.given_up, OWNER, 9) == []
    await db.write(webhooks.call_again, OWNER, turn.task.id, "w", event)


def _state_and_error(tx: Tx, run: Run) -> tuple[str, str | None]:
    (row,) = tx.q("select * from runs where id = :id", id=run.id)
    return row["state"], queue.last_error(tx, row)


@story
async def test_anothers_task_has_no_webhooks_and_takes_none(db: Database) -> None:
    """A67, F074: the same fault as for a task that is not there."""
    task = await ended(db)
    await put(db, hook(task.id))
    for name in ("stranger", OWNER):
        task_id = task.id if name == "stranger" else "not-there"
        for asked, more in (
            (webhooks.get, (name, task_id, "w")),
            (webhooks.of_task, (name, task_id)),
            (webhooks.delete, (name, task_id, "w")),
            (webhooks.put, (hook(task_id, owner=name),)),
            (webhooks.call_again, (name, task_id, "w", "1.0")),
        ):
            with pytest.raises(Fault) as fault:
                await db.write(asked, *more)  # type: ignore[arg-type]
            assert fault.value.kind == "not_found"
    assert await db.read(webhooks.page, "stranger", 10, None) == []
    assert [each.id for each in await db.read(webhooks.of_task, OWNER, task.id)] == ["w"]


@story
async def test_what_was_entrusted_stands_in_no_row_in_clear(db: Database) -> None:
    """F049, A93: and each cell belongs to its row and column."""
    task = await ended(db)
    secrets = {"token": "tok-canary", "scheme": "Bearer", "credentials": "cre-canary"}
    await put(db, hook(task.id, "a", **secrets), hook(task.id, "b"))
    found = await db.read(webhooks.get, OWNER, task.id, "a")
    assert (found.url, found.token, found.scheme, found.credentials) == (URL, *secrets.values())
    (row, bare) = await rows(db, "select * from webhooks order by id")
    assert b"canary" not in b"".join(cell for cell in row.values() if isinstance(cell, bytes))
    assert all(isinstance(row[name], bytes) for name in webhooks.SEALED) and bare["token"] is None

    def move(tx: Tx) -> None:
        tx.x("update webhooks set token = (select token from webhooks where id = 'a') where id = 'b'")

    await db.write(move)
    with pytest.raises(Exception, match=r"webhooks\.token"):
        await db.read(webhooks.get, OWNER, task.id, "b")


@pytest.mark.parametrize("way", ["delete", "end_all"])
@story
async def test_a_webhook_that_ends_takes_its_waiting_calls_along(db: Database, way: str) -> None:
    """F083, F158: also the one that is being made, whose worker has lost it; and no other's."""
    turn, other = await running(db), await running(db, session_id="other")
    await put(db, hook(turn.task.id), hook(other.task.id))
    await settled(db, turn)
    await settled(db, other)
    await db.write(journal.project)
    held = {run.params["task"]: run for run in await claim(db)}
    arguments: tuple[Any, ...] = (OWNER, turn.task.id, "w") if way == "delete" else (turn.task.id,)
    await db.write(getattr(webhooks, way), *arguments)
    states = "select group_concat(distinct state) from runs where kind = 'push' and task_id = :task"
    assert await value(db, states, task=turn.task.id) == "canceled"
    assert not await db.write(queue.finish, held[turn.task.id])
    assert await db.write(queue.finish, held[other.task.id])
    assert await value(db, "select count(*) from webhooks") == 1


@story
async def test_ids_that_begin_alike_are_two_webhooks(db: Database) -> None:
    turn = await running(db)
    await put(db, hook(turn.task.id, "w"), hook(turn.task.id, "w:3"))
    await settled(db, turn)
    await db.write(journal.project)
    await db.write(webhooks.delete, OWNER, turn.task.id, "w")
    assert await db.read(webhooks.counts, hook(turn.task.id, "w:3")) == {"queued": 1, "waiting": 2}


@story
async def test_webhooks_and_their_calls_are_found_by_an_index(db: Database) -> None:
    """However many others there are."""
    turn = await running(db)
    await put(db, hook(turn.task.id))

    def asked(tx: Tx) -> list[str]:
        lines = plans(tx, webhooks.page, OWNER, 10, (1, "t", "w"))
        lines += plans(tx, webhooks.calls, hook(turn.task.id), 10)
        lines += plans(tx, webhooks.counts, hook(turn.task.id))
        return lines + plans(tx, webhooks.announce, [(turn.task.id, 1, 0)])

    found = await db.write(asked)
    assert any("webhooks_by_age" in line for line in found) and any("runs_of_task" in line for line in found)
    assert [line for line in found if "SCAN" in line and "json_each" not in line] == []
