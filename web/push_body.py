"""The body of a webhook call: one StreamResponse as bytes, and what is left out of one that is too large. Pure.

What is left out is replaced by a marker, `metadata.withheld` with reason and size, beside a sentence for people; the
whole is there by GetTask. A pending question is kept longer than the rest: it goes last, and then its beginning stays.
"""

import json
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

LIMIT = 256 * 1024  # bytes
QUESTION_CHARS = 16_384  # of a question that is too large by itself; four bytes each at most
ASKS = frozenset({"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"})
ABOUT_QUESTION = ("question", "kind")  # metadata that an answer needs
REASON = "TOO_LARGE"
INCOGNITO = "INCOGNITO"
UNSAID = "Left out here: it is of an incognito session. Read the task with GetTask."


def unsaid(event: Json) -> Json:
    """`event` without a word of what was said: which task it is of, and how that stands."""
    (kind,) = event
    update = _opened(event[kind])
    holder = update["artifact"] if kind == "artifactUpdate" else update["status"].get("message")
    if holder is not None:
        about = {name: value for name, value in holder.get("metadata", {}).items() if name in ABOUT_QUESTION}
        ids = {
            name: holder[name] for name in ("artifactId", "messageId", "role", "taskId", "contextId") if name in holder
        }
        told = {**ids, "parts": [{"text": UNSAID}], "metadata": {**about, "withheld": {"reason": INCOGNITO}}}
        if kind == "artifactUpdate":
            update["artifact"] = told
        else:
            update["status"]["message"] = told
    return {kind: update}


def body(event: Json) -> bytes:
    """`event` (a StreamResponse with one member) as bytes, `LIMIT` at most."""
    made = _bytes(event)
    if len(made) <= LIMIT:
        return made
    (kind,) = event
    update = _opened(event[kind])
    for leave_out in _STEPS[kind]:
        leave_out(update)
        made = _bytes({kind: update})
        if len(made) <= LIMIT:
            return made
    raise ValueError(f"a {kind} is larger than {LIMIT} bytes without its content")


def _opened(update: Json) -> Json:
    """A copy as deep as the steps below reach, and no deeper: content may be large."""
    opened = dict(update)
    if "status" in opened:
        opened["status"] = dict(opened["status"])
        if "message" in opened["status"]:
            opened["status"]["message"] = dict(opened["status"]["message"])
    return opened


def _bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _marker(size: int) -> Json:
    return {"reason": REASON, "bytes": size, "limit": LIMIT}


def _sentence(size: int) -> str:
    return f"Left out here: {size:,} bytes are more than a webhook carries. Read the task with GetTask."


def _without_metadata(holder: Json, *kept: str) -> None:
    """The holder's metadata goes but for `kept`; the marker stands in its place."""
    metadata = holder.get("metadata")
    if metadata and "withheld" not in metadata:
        stays = {name: metadata[name] for name in kept if name in metadata}
        holder["metadata"] = {**stays, "withheld": _marker(len(_bytes(metadata)))}


def _without_parts(holder: Json) -> None:
    size = len(_bytes(holder["parts"]))
    holder["parts"] = [{"text": _sentence(size)}]
    holder["metadata"] = {"withheld": _marker(size)}


def _artifact_content(update: Json) -> None:
    artifact = update["artifact"]
    size = len(_bytes(artifact))
    update["artifact"] = {
        "artifactId": artifact["artifactId"],
        "parts": [{"text": _sentence(size)}],
        "metadata": {"withheld": _marker(size)},
    }


def _left_text(update: Json) -> None:
    """What a failed task left goes before why it failed does."""
    message = update["status"].get("message", {})
    left = [part for part in message.get("parts", ()) if part.get("metadata") == {"partial": True}]
    if left:
        size = len(_bytes(left))
        message["parts"] = [*(part for part in message["parts"] if part not in left), {"text": _sentence(size)}]
        message["metadata"] = {**message.get("metadata", {}), "withheld": _marker(size)}


def _status_metadata(update: Json) -> None:
    _without_metadata(update)
    _without_metadata(update["status"].get("message", {}), *ABOUT_QUESTION)


def _status_content(update: Json) -> None:
    if update["status"]["state"] not in ASKS:
        _without_parts(update["status"]["message"])


def _around_the_question(update: Json) -> None:
    """Of a question's message its first text stays: forms and details go."""
    message = update["status"]["message"]
    parts = message["parts"]
    asked = next((part for part in parts if "text" in part), None)
    if asked is None:
        _without_parts(message)
    elif len(parts) > 1:
        size = len(_bytes([part for part in parts if part is not asked]))
        message["parts"] = [asked, {"text": _sentence(size)}]
        message["metadata"] = {**message.get("metadata", {}), "withheld": _marker(size)}


def _end_of_the_question(update: Json) -> None:
    message = update["status"]["message"]
    text = message["parts"][0]["text"]
    size = len(text.encode())
    about = {name: value for name, value in message.get("metadata", {}).items() if name in ABOUT_QUESTION}
    message["parts"] = [{"text": text[:QUESTION_CHARS] + "…"}, {"text": _sentence(size)}]
    message["metadata"] = {**about, "withheld": _marker(size)}


_STEPS: dict[str, tuple[Callable[[Json], None], ...]] = {
    "artifactUpdate": (_artifact_content,),
    "statusUpdate": (_left_text, _status_metadata, _status_content, _around_the_question, _end_of_the_question),
}
