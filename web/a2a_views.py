"""From rows to the protocol's JSON: tasks, status, stream events. A2A 1.0, section 4.

Answers are put together from stored pieces; nothing here reads or decides.
"""

from typing import Any

from background.journal import Event, View
from background.states import A2A
from background.times import rfc3339

Json = dict[str, Any]


def task(view: View, history: list[Json] | None) -> Json:
    """A Task. `history` None leaves the field out, as `historyLength` 0 asks for."""
    made: Json = {
        "id": view.task_id,
        "contextId": view.context_id,
        "status": status(view.task_id, view.context_id, view.state, view.at, view.detail),
    }
    if view.ended:
        made["artifacts"] = view.result.artifacts if view.result else []
    if history is not None:
        made["history"] = [{"contextId": view.context_id, "taskId": view.task_id, **message} for message in history]
    metadata = _metadata(view)
    if metadata:
        made["metadata"] = metadata
    return made


def status(task_id: str, context_id: str, state: str, at: int, detail: str | None) -> Json:
    """A TaskStatus; its time always has milliseconds (section 5.6.1)."""
    made: Json = {"state": A2A[state], "timestamp": rfc3339(at)}
    if detail:
        made["message"] = {
            "messageId": f"{task_id}-{state}",
            "contextId": context_id,
            "taskId": task_id,
            "role": "ROLE_AGENT",
            "parts": [{"text": detail}],
        }
    return made


def _metadata(view: View) -> Json:
    told = {"reason": view.reason, "folded_into": view.folded_into}
    if view.origin != "user":
        told |= {"origin": view.origin, "trigger": view.cause}
    return {name: value for name, value in told.items() if value is not None}


def event(view: View, entry: Event) -> Json:
    """A StreamResponse: an artifact, or a status. `view` is the task as it is after the entry."""
    place = {"taskId": view.task_id, "contextId": view.context_id}
    if entry.artifact is not None:
        return {"artifactUpdate": {**place, "artifact": entry.artifact, "lastChunk": True}}
    last = entry.revision == view.revision
    told = status(view.task_id, view.context_id, entry.state, entry.at, view.detail if last else None)
    update: Json = {**place, "status": told}
    if last and (metadata := _metadata(view)):
        update["metadata"] = metadata
    return {"statusUpdate": update}
