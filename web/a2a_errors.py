"""Every error that an A2A client can meet: one table of code, HTTP status, gRPC status, domain and reason.

It turns an error into what a binding sends and decides nothing else: whoever raises says which, and why. The nine A2A
rows are section 5.4 of the A2A 1.0 specification, the JSON-RPC rows its section 9.5 with the reasons of the official
SDK. No message here ever holds a value that a client sent.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from web import refusals

PROTOCOL = "a2a-protocol.org"
OURS = "outrider"
TYPE = "type.googleapis.com/google.rpc."
# Over JSON-RPC an error travels in HTTP 200; these keep their status, so that proxies, load balancers and client
# libraries that never read the body still see who was turned away at the door, and when to come again.
KEEPS_STATUS = frozenset({401, 403, 503, 504})
RETRY_AFTER_S = 5

RpcId = str | int | float | None


class Kind(NamedTuple):
    """One row: what an error is on each binding. `http` is the status wherever statuses are used."""

    code: int
    http: int
    grpc: str
    domain: str
    message: str


KINDS: Mapping[str, Kind] = {
    "JSON_PARSE": Kind(-32700, 400, "INVALID_ARGUMENT", PROTOCOL, "Invalid JSON payload"),
    "INVALID_REQUEST": Kind(-32600, 400, "INVALID_ARGUMENT", PROTOCOL, "Request payload validation error"),
    "METHOD_NOT_FOUND": Kind(-32601, 501, "UNIMPLEMENTED", PROTOCOL, "Method not found"),
    "INVALID_PARAMS": Kind(-32602, 400, "INVALID_ARGUMENT", PROTOCOL, "Invalid parameters"),
    "INTERNAL_ERROR": Kind(-32603, 500, "INTERNAL", PROTOCOL, "Internal error"),
    "TASK_NOT_FOUND": Kind(-32001, 404, "NOT_FOUND", PROTOCOL, "Task not found"),
    "TASK_NOT_CANCELABLE": Kind(-32002, 400, "FAILED_PRECONDITION", PROTOCOL, "Task cannot be canceled"),
    "PUSH_NOTIFICATION_NOT_SUPPORTED": Kind(
        -32003, 400, "FAILED_PRECONDITION", PROTOCOL, "Push notifications are not supported"
    ),
    "UNSUPPORTED_OPERATION": Kind(-32004, 400, "FAILED_PRECONDITION", PROTOCOL, "This operation is not supported"),
    "CONTENT_TYPE_NOT_SUPPORTED": Kind(-32005, 400, "INVALID_ARGUMENT", PROTOCOL, "Incompatible content types"),
    "INVALID_AGENT_RESPONSE": Kind(-32006, 500, "INTERNAL", PROTOCOL, "Invalid agent response"),
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": Kind(
        -32007, 400, "FAILED_PRECONDITION", PROTOCOL, "No extended agent card is configured"
    ),
    "EXTENSION_SUPPORT_REQUIRED": Kind(-32008, 400, "FAILED_PRECONDITION", PROTOCOL, "Extension support required"),
    "VERSION_NOT_SUPPORTED": Kind(-32009, 400, "FAILED_PRECONDITION", PROTOCOL, "Protocol version not supported"),
    "WORKER_UNAVAILABLE": Kind(-32000, 503, "UNAVAILABLE", OURS, "No worker is live; nothing was stored"),
    "WAITING_LIMIT_REACHED": Kind(-32000, 503, "UNAVAILABLE", OURS, "Too many requests are waiting"),
    "STREAM_LIMIT_REACHED": Kind(-32000, 503, "UNAVAILABLE", OURS, "Too many streams are open"),
    "OPEN_TASKS_LIMIT_REACHED": Kind(-32000, 503, "UNAVAILABLE", OURS, "Too many tasks are open; nothing was stored"),
    "STREAM_EXPIRED": Kind(-32000, 503, "UNAVAILABLE", OURS, "The stream reached its time limit; the task goes on"),
    "STREAM_TOO_SLOW": Kind(-32000, 503, "UNAVAILABLE", OURS, "The stream was read too slowly; the task goes on"),
    "BLOCKING_DEADLINE_EXCEEDED": Kind(
        -32603, 504, "DEADLINE_EXCEEDED", OURS, "The task goes on beyond the time that a request may wait for it"
    ),
    "RESULT_NOT_STORABLE": Kind(-32004, 400, "FAILED_PRECONDITION", OURS, "This profile cannot keep a result"),
    "MESSAGE_ID_REUSED": Kind(-32602, 400, "INVALID_ARGUMENT", OURS, "This message id was used for another message"),
    "REQUEST_TOO_LARGE": Kind(-32600, 413, "RESOURCE_EXHAUSTED", OURS, "The request is too large"),
    "REQUEST_TOO_SLOW": Kind(-32600, 408, "DEADLINE_EXCEEDED", OURS, "The request did not come in time"),
    "UNAUTHENTICATED": Kind(-32041, 401, "UNAUTHENTICATED", OURS, "Access denied"),
    "PERMISSION_DENIED": Kind(-32043, 403, "PERMISSION_DENIED", OURS, "Access denied"),
}


class A2AError(Exception):
    """A refusal or failure that its client is told, by the row `reason` of KINDS.

    `message` replaces the row's; `metadata` (text values, Nones left out) goes into the ErrorInfo; `violations` are
    (field, description) pairs; `rpc_id` is the request's id where the error came up before anything else knew it.
    """

    def __init__(
        self,
        reason: str,
        message: str | None = None,
        *,
        metadata: Mapping[str, object] | None = None,
        violations: Sequence[tuple[str, str]] = (),
        retry_after_s: int | None = None,
        rpc_id: RpcId = None,
    ) -> None:
        self.reason = reason
        self.kind = KINDS[reason]
        self.message = message or self.kind.message
        self.metadata = {key: str(value) for key, value in (metadata or {}).items() if value is not None}
        self.violations = tuple(violations)
        self.retry_after_s = retry_after_s or (RETRY_AFTER_S if self.kind.http == 503 else None)
        self.rpc_id = rpc_id
        super().__init__(self.message)


def invalid(field: str, description: str) -> A2AError:
    """-32602 for one field, named as the client wrote it; `description` says what is allowed, never what was sent."""
    return A2AError("INVALID_PARAMS", f"{field}: {description}", violations=[(field, description)])


def internal(error_id: str) -> A2AError:
    """-32603 for a failure that is none of the table's: the client gets the id under which the log has the rest."""
    return A2AError("INTERNAL_ERROR", f"Internal error {error_id}", metadata={"errorId": error_id})


def details(error: A2AError) -> list[dict[str, Any]]:
    """The typed details, alike on every binding: ErrorInfo first, then BadRequest and RetryInfo where they apply.

    An error is told with them once, and is counted with them.
    """
    refusals.count(error.reason)
    found: list[dict[str, Any]] = [
        {
            "@type": TYPE + "ErrorInfo",
            "reason": error.reason,
            "domain": error.kind.domain,
            "metadata": error.metadata,
        }
    ]
    if error.violations:
        pairs = [{"field": field, "description": description} for field, description in error.violations]
        found.append({"@type": TYPE + "BadRequest", "fieldViolations": pairs})
    if error.retry_after_s is not None:
        found.append({"@type": TYPE + "RetryInfo", "retryDelay": f"{error.retry_after_s}s"})
    return found


def to_jsonrpc(error: A2AError, rpc_id: RpcId) -> dict[str, Any]:
    """The whole JSON-RPC envelope of an error."""
    told = {"code": error.kind.code, "message": error.message, "data": details(error)}
    return {"jsonrpc": "2.0", "id": rpc_id, "error": told}


def to_rest(error: A2AError) -> dict[str, Any]:
    """The whole body of an error over HTTP+JSON: `code` is the HTTP status, `status` the name of the gRPC one."""
    kind = error.kind
    return {"error": {"code": kind.http, "status": kind.grpc, "message": error.message, "details": details(error)}}


def http_status(error: A2AError, rpc_error_status: Literal["native", "200"]) -> int:
    """The HTTP status over JSON-RPC; `rpc_error_status` is the setting of that name."""
    return error.kind.http if rpc_error_status == "native" and error.kind.http in KEEPS_STATUS else 200


def headers(error: A2AError) -> dict[str, str]:
    """The headers that go with an error on any binding over HTTP."""
    if error.kind.http == 401:
        return {"www-authenticate": "Bearer"}
    if error.kind.http == 408:
        return {"connection": "close"}  # whatever still comes of it is no request
    return {} if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
