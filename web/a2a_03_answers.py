"""Answers of A2A 1.0 in the words of 0.3, JSON to JSON: `kind`s, states and roles in lower case, files as objects.

What 0.3 has no word for is left out: the media type and the name of a part that is no file. Values are never copied or
converted, so numbers go out as they came in. A2A 0.3.0, sections 6 and 7.
"""

from collections.abc import Callable
from typing import Any

from web import a2a_card
from web.a2a_03_params import FILE_FIELDS, WRAPPED

Json = dict[str, Any]

# After these a stream has no more events. A task that waits for its user is gone on with by another send.
FINAL = frozenset({"completed", "canceled", "failed", "rejected", "input-required"})


def sent(answer: Json) -> Json:
    """Of `message/send`: a task, never a bare message."""
    return task(answer["task"])


def task(made: Json) -> Json:
    """A Task."""
    told = {"kind": "task", **made, "status": _status(made["status"])}
    if "history" in made:
        told["history"] = [_message(message) for message in made["history"]]
    if "artifacts" in made:
        told["artifacts"] = [_artifact(artifact) for artifact in made["artifacts"]]
    return told


def page(made: Json) -> Json:
    """Of `tasks/list`, which 0.3 does not have over JSON-RPC: a page as 1.0 has it, of tasks as 0.3 has them."""
    return {**made, "tasks": [task(found) for found in made["tasks"]]}


def event(item: Json) -> Json:
    """What a stream tells: of a StreamResponse, the one member with its `kind`."""
    ((name, made),) = item.items()
    return EVENTS[name](made)


def config(made: Json) -> Json:
    """A TaskPushNotificationConfig."""
    told = {name: made[name] for name in ("id", "url")}
    if "authentication" in made:
        told["authentication"] = {"schemes": [made["authentication"]["scheme"]]}
    return {"taskId": made["taskId"], "pushNotificationConfig": told}


def configs(made: Json) -> list[Json]:
    """Of `tasks/pushNotificationConfig/list`: all of them, as 0.3 has no pages."""
    return [config(found) for found in made["configs"]]


def nothing(made: Json) -> None:
    """Of `tasks/pushNotificationConfig/delete`."""


def card(made: Json) -> Json:
    """An agent card; its further fields stay, as they do at its address."""
    return a2a_card.for_both(made)


def _status_update(made: Json) -> Json:
    status = _status(made["status"])
    return {"kind": "status-update", **made, "status": status, "final": status["state"] in FINAL}


def _artifact_update(made: Json) -> Json:
    return {"kind": "artifact-update", **made, "artifact": _artifact(made["artifact"])}


EVENTS: dict[str, Callable[[Json], Json]] = {
    "task": task,
    "statusUpdate": _status_update,
    "artifactUpdate": _artifact_update,
}


def _status(made: Json) -> Json:
    told = {**made, "state": made["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")}
    return told | {"message": _message(made["message"])} if "message" in made else told


def _message(made: Json) -> Json:
    role = made["role"].removeprefix("ROLE_").lower()
    return {"kind": "message", **made, "role": role, "parts": [_part(part) for part in made["parts"]]}


def _artifact(made: Json) -> Json:
    return {**made, "parts": [_part(part) for part in made["parts"]]}


def _part(made: Json) -> Json:
    about = {"metadata": made["metadata"]} if "metadata" in made else {}
    if "text" in made:
        return {"kind": "text", "text": made["text"], **about}
    if "data" not in made:
        return {"kind": "file", "file": _file(made), **about}
    data = made["data"]
    if isinstance(data, dict):
        return {"kind": "data", "data": data, **about}
    return {"kind": "data", "data": {"value": data}, "metadata": {**made.get("metadata", {}), WRAPPED: True}}


def _file(made: Json) -> Json:
    told = {old: made[name] for name, old in FILE_FIELDS.items() if name in made}
    return told | {"bytes": _plain_base64(told["bytes"])} if "bytes" in told else told


def _plain_base64(text: str) -> str:
    """1.0 allows either alphabet, padded or not; clients of 0.3 read the plain one only, and lose bytes of the other."""
    bare = text.replace("-", "+").replace("_", "/").rstrip("=")
    return bare + "=" * (-len(bare) % 4)
