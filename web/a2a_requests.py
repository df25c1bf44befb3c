"""What an A2A client asks, read strictly and as pure functions: bytes to an envelope, its params to a request.

Nothing is looked up, stored or awaited here, so it may run in any thread. A refusal is an A2AError that names the
field as the client wrote it and never repeats its value. Fields that the protocol does not know are left out.
"""

import math
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from background.values import LongNumber, NotJson, TooDeep, decode
from web import a2a_fields as fields
from web import a2a_message, a2a_webhook
from web.a2a_03 import TWINS
from web.a2a_errors import A2AError, RpcId, invalid
from web.a2a_fields import NESTING, Limits
from web.a2a_webhook import Config

# Around the data of a part stand the params, message, parts and the part, and over JSON-RPC the envelope.
BODY_NESTING = NESTING + 4
MOST_ID = 256  # characters of a request's id, which goes out again as it came
VERSIONS = {"1.0": re.compile(r"1\.0(\.[0-9]+)?"), "0.3": re.compile(r"0\.3(\.[0-9]+)?")}

SERVED = frozenset(
    {
        "SendMessage",
        "SendStreamingMessage",
        "GetTask",
        "ListTasks",
        "CancelTask",
        "SubscribeToTask",
        "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig",
        "GetExtendedAgentCard",
    }
)
METHODS = {"1.0": SERVED, "0.3": TWINS.keys()}


class Envelope(NamedTuple):
    """A JSON-RPC request; `params` is whatever stood there, and `{}` where nothing did."""

    id: RpcId
    method: str
    params: Any


@dataclass(frozen=True, slots=True)
class SendRequest:
    """A message to accept.

    `message` is the protocol's JSON as it was sent, without unknown and empty fields; `metadata` that of the request
    around it. `text` is its text parts, a line break between them; `words` is all of it, as a model reads it.
    `fingerprint` is the same for the same message, however it was spelled.
    """

    message: dict[str, Any]
    metadata: dict[str, Any] | None
    message_id: str
    context_id: str | None
    task_id: str | None
    text: str
    words: str
    skill: str
    return_immediately: bool
    history_length: int | None
    fingerprint: str
    steer: bool = False
    webhook: Config | None = None


class TaskRequest(NamedTuple):
    """A task that somebody asks about. `history_length`: None for all of it."""

    id: str
    history_length: int | None = None


def parse_envelope(body: bytes) -> Envelope:
    """The request in a body. A2AError -32700, -32600, or -32602 for what is JSON and cannot be taken in.

    The error's `rpc_id` is the request's id wherever one could be told.
    """
    value = _decoded(body, BODY_NESTING + 1, "params")
    if not isinstance(value, dict):
        raise A2AError("INVALID_REQUEST", "The body must be one JSON-RPC request object; batches are not supported")
    rpc_id, method = _rpc_id(value), value.get("method")
    if rpc_id is None and value.get("id") is not None:
        raise A2AError("INVALID_REQUEST", "id must be a string, a number or null")
    if isinstance(rpc_id, str) and len(rpc_id) > MOST_ID:
        raise A2AError("INVALID_REQUEST", f"id must not be longer than {MOST_ID} characters")
    if value.get("jsonrpc") != "2.0":
        raise A2AError("INVALID_REQUEST", 'jsonrpc must be "2.0"', rpc_id=rpc_id)
    if not isinstance(method, str) or not method:
        raise A2AError("INVALID_REQUEST", "method must be a string, and not empty", rpc_id=rpc_id)
    return Envelope(rpc_id, method, value.get("params", {}))


def parse_body(body: bytes, may_be_empty: bool) -> dict[str, Any]:
    """The params in a body that has nothing around them. A2AError -32700, -32600, -32602 like `parse_envelope`."""
    value = {} if may_be_empty and not body else _decoded(body, BODY_NESTING, "body")
    if not isinstance(value, dict):
        raise A2AError("INVALID_REQUEST", "The body must be a JSON object")
    return value


def _decoded(body: bytes, nesting: int, whole: str) -> Any:
    """The JSON value; `whole` is what a refusal names that can name no field."""
    try:
        return decode(body, nesting)
    except NotJson:
        raise A2AError("JSON_PARSE") from None
    except LongNumber:
        raise invalid(whole, "a number has too many digits") from None
    except TooDeep as deep:
        refused = invalid(_place(deep) or whole, f"must not be nested deeper than {NESTING} levels")
        refused.rpc_id = _rpc_id(deep.value)
        raise refused from None


def negotiate(header: str | None, query: str | None, method: str) -> str:
    """The protocol version to speak, `1.0` or `0.3`; `header` (which wins) and `query` are A2A-Version, None where absent.

    No two versions have a method of the same name. A2AError -32601 for a method of no version, and for one of 0.3
    asked for in 1.0; -32009 for a version that is not the method's (none at all means 0.3).
    """
    asked = (header if header is not None else query) or "0.3"
    version = next((version for version, pattern in VERSIONS.items() if pattern.fullmatch(asked)), None)
    own = next((version for version, methods in METHODS.items() if method in methods), None)
    if own is None or (own == "0.3" and version == "1.0"):
        raise A2AError("METHOD_NOT_FOUND")
    if version != own:
        said = f"Protocol version not supported: {method} is a method of {own}; send the header A2A-Version: {own}"
        raise A2AError("VERSION_NOT_SUPPORTED", said, metadata={"supported": own})
    return own


def send_params(params: Any, limits: Limits) -> SendRequest:
    """Params of SendMessage and SendStreamingMessage. A2AError -32602, -32005."""
    given = fields.params(params)
    sent = fields.object_at(given, "message", "")
    if sent is None:
        raise invalid("message", "is required")
    message = a2a_message.checked(sent, limits)
    configuration = fields.object_at(given, "configuration", "") or {}
    fields.strings(configuration, "acceptedOutputModes", "configuration.", limits)
    mark, words = a2a_message.spelled(message)
    return SendRequest(
        fingerprint=mark,
        message=message,
        metadata=fields.metadata_of(given, "", limits),
        message_id=message["messageId"],
        context_id=message.get("contextId"),
        task_id=message.get("taskId"),
        text=a2a_message.text_of(message, limits),
        words=words,
        skill=a2a_message.skill_of(message, limits),
        steer=a2a_message.steers(message),
        return_immediately=fields.flag(configuration, "returnImmediately", "configuration."),
        history_length=fields.natural(configuration, "historyLength", "configuration."),
        webhook=a2a_webhook.inline(configuration, limits),
    )


def get_params(params: Any, limits: Limits) -> TaskRequest:
    """Params of GetTask. A2AError -32602."""
    given = fields.params(params)
    return TaskRequest(fields.required_id(given, "id", "", limits), fields.natural(given, "historyLength", ""))


def cancel_params(params: Any, limits: Limits) -> TaskRequest:
    """Params of CancelTask; their metadata is checked and means nothing to us. A2AError -32602."""
    given = fields.params(params)
    fields.metadata_of(given, "", limits)
    return TaskRequest(fields.required_id(given, "id", "", limits))


def subscribe_params(params: Any, limits: Limits) -> TaskRequest:
    """Params of SubscribeToTask. A2AError -32602."""
    return TaskRequest(fields.required_id(fields.params(params), "id", "", limits))


def _rpc_id(value: Any) -> RpcId:
    """The id of a request; None where it has none that JSON-RPC allows."""
    found = value.get("id") if isinstance(value, dict) else None
    if isinstance(found, bool) or not isinstance(found, str | int | float):
        return None
    return None if isinstance(found, float) and not math.isfinite(found) else found


def _place(deep: TooDeep) -> str:
    """The field that is too deep: down to the data or metadata in it, and no further into what the client made up."""
    path = deep.path[1:] if deep.path[:1] == ("params",) else deep.path
    end = next((index for index, key in enumerate(path) if key in ("data", "metadata")), 0)
    named = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path[: end + 1])
    return named.lstrip(".")
