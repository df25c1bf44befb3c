"""A message that was folded into a turn is part of it: it sinks, is erased and is carried elsewhere with that turn."""

import pytest

from agent import taking_up
from agent.taking_up import Shape
from background import checkpoints, messages, sessions, snapshots, tasks, terminal
from background.database import Database
from background.tasks import Task
from tests.a2a import wire
from tests.background.factories import Turn, outcome, running, settled, submitted
from tests.background.story import log_of, story
from tests.steering import turns
from tests.support.scripted import ScriptedModel
from tests.support.server import Server

SECRET = "ada@example.com"


async def folding(db: Database, text: str, turn_level: str = "full", level: str = "full") -> tuple[Turn, Task]:
    """A turn, and a message that was folded into it."""
    turn = await running(db, "work", ceiling=turn_level)
    steering = await submitted(db, text, steer=True, ceiling=level)
    assert await db.write(taking_up.take_up, turn.run, 1, Shape())
    return turn, steering


async def words_of(db: Database, task_id: str) -> str:
    """All that a task's log and checkpoints say."""
    said = await db.read(messages.said_by_user, task_id)
    return " ".join([*(each.text for each in said), *(await db.read(checkpoints.of_task, task_id)).values()])


@pytest.mark.parametrize(("of_turn", "own"), [("redacted", "full"), ("full", "redacted")])
@story
async def test_a_folded_message_and_its_turn_are_kept_at_the_stricter_level_of_the_two(
    db: Database, of_turn: str, own: str
) -> None:
    turn, steering = await folding(db, f"to {SECRET}", of_turn, own)
    assert await words_of(db, steering.id) == "to ***" and await words_of(db, turn.task.id) == "work to ***"
    assert {await db.read(tasks.ceiling_of, task.id) for task in (turn.task, steering)} == {"redacted"}


@story
async def test_a_turn_whose_level_sinks_takes_what_was_folded_into_it_along(db: Database) -> None:
    turn, steering = await folding(db, f"to {SECRET}")
    assert SECRET in await words_of(db, steering.id)
    await db.write(terminal.tighten, turn.task.id, "redacted")
    assert await words_of(db, steering.id) == "to ***"
    await db.write(terminal.tighten, turn.task.id, "none")
    assert await words_of(db, steering.id) == ""
    assert (await db.read(tasks.by_id, steering.id)).state == "completed"


@story
async def test_more_words_that_came_to_a_message_while_it_waited_are_folded_in_with_it(db: Database) -> None:
    turn = await running(db, "work")
    steering = await submitted(db, "one", steer=True)
    await submitted(db, "between", task_id=turn.task.id)
    await submitted(db, "two", task_id=steering.id)
    assert await db.write(taking_up.take_up, turn.run, 1, Shape()) == ["one", "between", "two"]
    assert await settled(db, turn)


@story
async def test_a_session_that_is_carried_elsewhere_keeps_what_was_folded_into_its_turns(db: Database) -> None:
    turn, _ = await folding(db, "and this")
    assert await db.write(terminal.settle, turn.run, outcome())
    home = await db.read(sessions.by_uid, turn.task.session)
    copied = await db.write(snapshots.copy, home, "elsewhere")
    log = await log_of(db, copied.uid, 10, None)
    assert [(entry.kind, entry.text) for entry in log] == [("user", "work"), ("user", "and this"), ("agent", "")]
    (task_id,) = {entry.task_id or "" for entry in log}
    assert len(await db.read(messages.history, task_id, None)) == 2


def test_a_folded_message_is_erased_with_its_turn_and_not_alone(server: Server, model: ScriptedModel) -> None:
    """Alone, its words would still stand in what the turn was given."""
    session = wire.fresh("s")
    turn = turns.held(server, model, session)
    steering = server.say(session, "a word to be forgotten", steer=True)
    turns.go_on(model)
    assert turns.folded(server, steering) == turn and turns.answer(server, turn)
    alone = server.http.delete(f"/api/sessions/{session}/tasks/{steering}")
    assert alone.status_code == 409 and alone.json()["error"]["details"] == {"folded_into": turn}
    assert server.http.delete(f"/api/sessions/{session}/tasks/{turn}").is_success
    assert server.messages(session) == []
    assert server.rpc("GetTask", {"id": steering})["error"]["code"] == -32001
