"""Which calls of a kept answer are no longer what the model wrote, because something was taken out of what is kept.

Such a call is never made from the copy. It stands beside its answer `model:N` as `masked:N`: the places of these calls
among the answer's, and nothing of what they said. It knows of an answer no more than where its calls are.
"""

import json
from collections.abc import Mapping
from typing import Any

from background import checkpoints
from background.database import Tx

ANSWER, MARK = "model:", "masked:"


def places_in(stored: Mapping[str, str], number: int) -> frozenset[int]:
    """The places of the altered calls of answer `number`, in what is stored of a turn."""
    return _places(stored.get(f"{MARK}{number}"))


def kept_of(tx: Tx, task_id: str, number: int) -> frozenset[int]:
    """The same, as it is stored now."""
    return _places(checkpoints.one(tx, task_id, f"{MARK}{number}"))


def answers(tx: Tx, task_id: str) -> dict[str, str]:
    """A task's answers as they are kept now, for `mark` after a change."""
    return {name: content for name, content in checkpoints.of_task(tx, task_id).items() if name.startswith(ANSWER)}


def mark(tx: Tx, task_id: str, before: Mapping[str, str]) -> None:
    """Mark each call that is kept otherwise than `before`; in the commit of the change. A mark is never taken back."""
    for name, content in before.items():
        number = int(name.removeprefix(ANSWER))
        known = kept_of(tx, task_id, number)
        places = known | _altered(content, checkpoints.one(tx, task_id, name) or "[]")
        if places != known:
            checkpoints.put_beside(tx, task_id, name, f"{MARK}{number}", json.dumps(sorted(places)))


def _places(mark: str | None) -> frozenset[int]:
    return frozenset(json.loads(mark or "[]"))


def _altered(before: str, after: str) -> frozenset[int]:
    if before == after:
        return frozenset()
    given, kept = _calls(before), _calls(after)
    return frozenset(place for place, call in enumerate(given) if [call] != kept[place : place + 1])


def _calls(answer: str) -> list[tuple[Any, ...]]:
    """What makes each call of an answer the one that it is: arguments, tool and id."""
    parts = [part for message in json.loads(answer) for part in message.get("parts", ())]
    return [
        (part.get("args"), part.get("tool_name"), part.get("tool_call_id"))
        for part in parts
        if part.get("part_kind") == "tool-call"
    ]
