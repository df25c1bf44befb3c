"""Params of A2A 0.3 as the params of 1.0 that mean the same, JSON to JSON: only what 0.3 spells otherwise is looked at.

All else is left to whoever checks 1.0, so nothing is checked in two ways; `named` gives a refusal of theirs the field's
name here. Values are never copied or converted. A2A 0.3.0, sections 6 and 7.
"""

import re
from collections.abc import Callable
from typing import Any

from web import a2a_fields as fields
from web.a2a_errors import invalid

Json = dict[str, Any]
Params = Callable[[Any], Json]

# 0.3 has objects only as structured data. The official clients wrap any other value in one, and say so in its metadata.
WRAPPED = "data_part_compat"
STATES = (
    "submitted",
    "working",
    "input-required",
    "completed",
    "canceled",
    "failed",
    "rejected",
    "auth-required",
)
MESSAGE_FIELDS = ("messageId", "contextId", "taskId", "metadata", "extensions", "referenceTaskIds")
LIST_FIELDS = ("contextId", "statusTimestampAfter", "pageSize", "pageToken", "historyLength", "includeArtifacts")
KINDS = {"text": (str, "a string"), "data": (dict, "an object"), "file": (dict, "an object")}
FILE_FIELDS = {"raw": "bytes", "url": "uri", "filename": "name", "mediaType": "mimeType"}
OF_A_FILE = re.compile(rf"(?<=\])\.({'|'.join(FILE_FIELDS)})$")


def picking(*names: str) -> Params:
    """Of params with the same names in both versions: only these."""
    return lambda sent: _only(fields.params(sent), *names)


def nothing(sent: Any) -> Json:
    """Of a method that takes none. A2AError -32602."""
    return _only(fields.params({} if sent is None else sent))


def send(sent: Any) -> Json:
    """Of `message/send` and `message/stream`. A2AError -32602."""
    given = fields.params(sent)
    made = _only(given, "metadata")
    if (message := fields.object_at(given, "message", "")) is not None:
        made["message"] = _message(message)
    if (configuration := fields.object_at(given, "configuration", "")) is not None:
        made["configuration"] = _configuration(configuration)
    return made


def list_tasks(sent: Any) -> Json:
    """Of `tasks/list`. A2AError -32602."""
    given = fields.params(sent)
    made, status = _only(given, *LIST_FIELDS), given.get("status")
    if status not in (None, ""):
        if status not in STATES:
            raise invalid("status", f"must be one of {', '.join(STATES)}")
        made["status"] = f"TASK_STATE_{status.upper().replace('-', '_')}"
    return made


def set_config(sent: Any) -> Json:
    """Of `tasks/pushNotificationConfig/set`. A2AError -32602."""
    given = fields.params(sent)
    config = fields.object_at(given, "pushNotificationConfig", "")
    if config is None:
        raise invalid("pushNotificationConfig", "is required")
    return _config(config, "pushNotificationConfig.") | _only(given, "taskId")


def get_config(sent: Any) -> Json:
    """Of `tasks/pushNotificationConfig/get`; without the id of one, the one that was made without an id of its own."""
    made = named_config(sent)
    return made if made.get("id") else made | {"id": made.get("taskId")}


def named_config(sent: Any) -> Json:
    """Of `tasks/pushNotificationConfig/delete` and `…/list`, where `id` is the task's."""
    given = fields.params(sent)
    return {"taskId": given.get("id"), "id": given.get("pushNotificationConfigId")}


def _only(given: Json, *names: str) -> Json:
    return {name: given[name] for name in names if name in given}


def _message(sent: Json) -> Json:
    if sent.get("kind") not in (None, "message"):  # the examples of the specification leave it out
        raise invalid("message.kind", "must be message")
    if sent.get("role") != "user":
        raise invalid("message.role", "must be user")
    parts = sent.get("parts")
    if isinstance(parts, list):
        parts = [_part(part, f"message.parts[{index}]") for index, part in enumerate(parts)]
    return _only(sent, *MESSAGE_FIELDS) | {"role": "ROLE_USER", "parts": parts}


def _part(sent: Any, at: str) -> Any:
    if not isinstance(sent, dict):
        return sent
    kind = sent.get("kind")
    if kind not in ("text", "file", "data"):
        raise invalid(f"{at}.kind", "must be text, file or data")
    wanted, told = KINDS[kind]
    if not isinstance(sent.get(kind), wanted):
        raise invalid(f"{at}.{kind}", f"must be {told}")
    made = _file(sent["file"], f"{at}.file") if kind == "file" else {kind: sent[kind]}
    return _unwrapped(made | _only(sent, "metadata"))


def _file(sent: Json, at: str) -> Json:
    if (sent.get("bytes") is None) == (sent.get("uri") is None):
        raise invalid(at, "must have exactly one of bytes, uri")
    return {name: sent[old] for name, old in FILE_FIELDS.items() if sent.get(old) is not None}


def _unwrapped(part: Json) -> Json:
    data, about = part.get("data"), part.get("metadata")
    if not isinstance(about, dict) or about.get(WRAPPED) is not True or not data or data.keys() != {"value"}:
        return part
    rest = {name: value for name, value in about.items() if name != WRAPPED}
    return {"data": data["value"]} | ({"metadata": rest} if rest else {})


def _configuration(sent: Json) -> Json:
    made = _only(sent, "acceptedOutputModes", "historyLength")
    if sent.get("blocking") is not None:
        made["returnImmediately"] = not fields.flag(sent, "blocking", "configuration.")
    if (config := fields.object_at(sent, "pushNotificationConfig", "configuration.")) is not None:
        made["taskPushNotificationConfig"] = _config(config, "configuration.pushNotificationConfig.")
    return made


def _config(sent: Json, at: str) -> Json:
    made = _only(sent, "id", "url", "token")
    if (authentication := fields.object_at(sent, "authentication", at)) is not None:
        schemes = authentication.get("schemes")
        if not isinstance(schemes, list) or not schemes:
            raise invalid(f"{at}authentication.schemes", "must be a list of at least one scheme")
        # The receiver takes any of them; a call has one.
        made["authentication"] = _only(authentication, "credentials") | {"scheme": schemes[0]}
    return made


# --- what a field of 1.0 is called here --------------------------------------------------------------------------------


def named(field: str) -> str:
    """The name of a field, as it is in most params."""
    field = field.replace("configuration.taskPushNotificationConfig", "configuration.pushNotificationConfig")
    return OF_A_FILE.sub(lambda found: f".file.{FILE_FIELDS[found[1]]}", _scheme(field))


def named_in_set(field: str) -> str:
    """The name of a field in params of `tasks/pushNotificationConfig/set`."""
    return field if field in ("params", "taskId", "tenant") else f"pushNotificationConfig.{_scheme(field)}"


def named_of_config(field: str) -> str:
    """The name of a field where `id` is the task's, and a config's is `pushNotificationConfigId`."""
    return {"taskId": "id", "id": "pushNotificationConfigId"}.get(field, field)


def _scheme(field: str) -> str:
    return re.sub(r"authentication\.scheme$", "authentication.schemes[0]", field)
