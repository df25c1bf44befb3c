"""From rows to the protocol's JSON: tasks, status, stream events. A2A 1.0, section 4.

Answers are put together from stored pieces; nothing here reads or decides.
"""

from typing import Any

from background import questions
from background.acceptance import INITIATED_BY
from background.journal import Event, View
from background.questions import Asked
from background.states import A2A
from background.times import rfc3339

Json = dict[str, Any]


def task(view: View, history: list[Json] | None, *, artifacts: bool = True) -> Json:
    """A Task. `history` None leaves the field out, as `historyLength` 0 asks for, and no `artifacts` theirs."""
    place = _place(view)
    made: Json = {
        "id": view.task_id,
        "contextId": view.context_id,
        "status": status(place, view.state, view.at, view.detail, view.question, view.left),
    }
    if artifacts and (view.ended or view.result):
        made["artifacts"] = view.result.artifacts if view.result else []
    if history is not None:
        made["history"] = [{**place, **message} for message in history]
    metadata = _metadata(view)
    if metadata:
        made["metadata"] = metadata
    return made


def status(place: Json, state: str, at: int, detail: str | None, asked: Asked | None, left: str | None) -> Json:
    """A TaskStatus; its time always has milliseconds (section 5.6.1). A parked task's message is its question.

    What text a failed one left is no artifact, which would pass for an answer: it is a further part, marked `partial`.
    """
    made: Json = {"state": A2A[state], "timestamp": rfc3339(at)}
    if asked:
        made["message"] = {**place, **questions.message(place["taskId"], asked)}
    elif detail:
        parts = [{"text": detail}, *([{"text": left, "metadata": {"partial": True}}] if left else [])]
        told = {"messageId": f"{place['taskId']}-{state}", "role": "ROLE_AGENT", "parts": parts}
        made["message"] = {**told, **place}
    return made


def _place(view: View) -> Json:
    return {"taskId": view.task_id, "contextId": view.context_id}


def _metadata(view: View) -> Json:
    told = {"reason": view.reason, "folded_into": view.folded_into, "stopped": view.stopped}
    told[INITIATED_BY] = view.initiated_by
    if view.origin != "user":
        told |= {"origin": view.origin, "trigger": view.cause}
    return {name: value for name, value in told.items() if value is not None}


def event(view: View, entry: Event) -> Json:
    """A StreamResponse: an artifact or a piece of one, or a status. `view` is the task as it is after the entry."""
    place = _place(view)
    if entry.artifact is not None:
        update = {**place, "artifact": entry.artifact}
        return {"artifactUpdate": update | ({"append": True} if entry.append else {}) | {"lastChunk": entry.whole}}
    last = entry.revision == view.revision
    told = status(place, entry.state, entry.at, view.detail if last else None, entry.question, entry.left)
    update = {**place, "status": told}
    if last and (metadata := _metadata(view)):
        update["metadata"] = metadata
    return {"statusUpdate": update}
