"""Turns that are steered: held before a step or before their last answer, and what their model was then told."""

from typing import Any

from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of

STEP, LAST = "step", "last"  # gates: before a step whose tool runs at once, before the answer behind it


def two_steps(*more: Rule, answer: str = "All of it.") -> list[Rule]:
    """A turn that is told `work`: it calls a tool, held at `STEP`, and answers, held at `LAST`; then `more`, else `ok`."""
    call = {"name": "memory_recall", "arguments": {"query": "weather"}}
    return [
        Rule(last_user="^work$", tool_calls=[call], gate=STEP, times=1),
        Rule(anywhere=r"(?m)^work$[\s\S]*(Reference material|Nothing found)", text=answer, gate=LAST, times=1),
        *more,
    ]


def held(server: Server, model: ScriptedModel, session: str, gate: str = STEP, *more: Rule, **how: Any) -> str:
    """A turn of a new session that is held before its step, or before its last answer. Returns its task."""
    model.rules(two_steps(*more))
    task = server.say(session, "work", **how)
    model.held_at(STEP)
    if gate == LAST:
        model.open(STEP)
        model.held_at(LAST)
    return task


def go_on(model: ScriptedModel) -> None:
    model.open(STEP)
    model.open(LAST)


def told(model: ScriptedModel, number: int = -1) -> list[str]:
    """What the user says in one of the requests to the model, in order; by default in the newest."""
    users = [message["content"] for message in model.requests()[number].messages if message["role"] == "user"]
    return [text for text in users if "<session-memory>" not in text]  # given by the system, of other sessions


def said(server: Server, session: str, kind: str = "user") -> list[str]:
    """The texts of one kind in a session's log, in order."""
    return [message["text"] for message in server.messages(session) if message["kind"] == kind]


def entry(server: Server, session: str, text: str) -> dict[str, Any]:
    """The log's entry of this text."""
    (found,) = [message for message in server.messages(session) if message["text"] == text]
    return found


def folded(server: Server, task_id: str) -> str | None:
    """The turn that a task was folded into; it has completed then, and without artifacts. None for one that was not."""
    task = server.ended(task_id)
    into = task.get("metadata", {}).get("folded_into")
    if into:
        assert (task["status"]["state"], task["artifacts"]) == ("TASK_STATE_COMPLETED", [])
    return into


def answer(server: Server, task_id: str) -> str:
    """With what a task has ended."""
    return answer_of(server.ended(task_id))
