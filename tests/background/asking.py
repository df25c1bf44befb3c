"""Questions in a named state: asked, parked for, answered, refused."""

from dataclasses import replace
from typing import Any

import pytest

from background import acceptance, questions, queue, tasks, terminal
from background.acceptance import Accepted
from background.database import Database
from background.errors import Fault
from background.questions import Question
from background.queue import Run
from tests.background.factories import Turn, begun, heard_of, message, running
from tests.background.story import everything

FORM = {
    "type": "object",
    "properties": {"size": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["size"],
    "additionalProperties": False,
}
KINDS = ("question", "form", "approval", "auth")
STATES = {"question": "input_required", "form": "input_required", "approval": "input_required", "auth": "auth_required"}
FITTING: dict[str, dict[str, Any]] = {"form": {"data": {"size": 3}}, "approval": {"text": "approve"}}

every_kind = pytest.mark.parametrize("kind", KINDS)


def question(kind: str = "question", key: str = "which", **differences: Any) -> Question:
    """What a turn may ask; a form wants a number `size` between 1 and 5."""
    details = {"approval": "rm -rf build", "question": "", "auth": "", "form": ""}
    asked = Question(kind, key, f"Of {kind}: {key}?", details[kind], FORM if kind == "form" else None)
    return replace(asked, **differences)


async def parked(
    db: Database, asked: Question | None = None, deadline: int | None = None, turn: Turn | None = None, **more: Any
) -> Turn:
    """A turn that has asked its user something, and waits for the answer."""
    found = turn or await running(db, **more)
    assert await db.write(terminal.park, found.run, asked or question(), deadline=deadline)
    return Turn(await db.read(tasks.by_id, found.task.id), found.run)


async def answered(db: Database, turn: Turn, text: str = "This one.", **differences: Any) -> Accepted:
    """Its user has answered; the next run of the task waits for a worker."""
    await heard_of(db)
    return await db.write(acceptance.accept, message(text, task_id=turn.task.id, **differences))


async def claim(db: Database, kind: str = "turn") -> list[Run]:
    return await db.write(queue.claim, "w", kind, 100)


async def asked_of(db: Database, turn: Turn) -> questions.Asked:
    """The open question of a parked turn."""
    asked = await db.read(questions.current, turn.task.id)
    assert asked is not None
    return asked


async def refused(db: Database, turn: Turn, text: str = "This one.", **differences: Any) -> Fault:
    """The fault with which an answer is refused; nothing of it is stored."""
    await heard_of(db)
    before = everything(db.path)
    with pytest.raises(Fault) as caught:
        await db.write(acceptance.accept, message(text, task_id=turn.task.id, **differences))
    assert everything(db.path) == before
    return caught.value


async def goes_on(db: Database, turn: Turn) -> Turn:
    """The answered task is at work again."""
    return await begun(db, turn.task)
