"""F064, A78, A79: each error is one row, alike on every binding, and tells what it may and nothing else."""

import json
from typing import Any

import pytest
from a2a.utils.errors import A2A_ERROR_MAPPING, JSON_RPC_ERROR_CODE_MAP
from google.rpc import error_details_pb2

from web.a2a_errors import KINDS, A2AError, headers, http_status, internal, invalid, to_jsonrpc, to_rest

# reason: code, HTTP, gRPC; the nine of the protocol
PROTOCOL = {
    "TASK_NOT_FOUND": (-32001, 404, "NOT_FOUND"),
    "TASK_NOT_CANCELABLE": (-32002, 400, "FAILED_PRECONDITION"),
    "PUSH_NOTIFICATION_NOT_SUPPORTED": (-32003, 400, "FAILED_PRECONDITION"),
    "UNSUPPORTED_OPERATION": (-32004, 400, "FAILED_PRECONDITION"),
    "CONTENT_TYPE_NOT_SUPPORTED": (-32005, 400, "INVALID_ARGUMENT"),
    "INVALID_AGENT_RESPONSE": (-32006, 500, "INTERNAL"),
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": (-32007, 400, "FAILED_PRECONDITION"),
    "EXTENSION_SUPPORT_REQUIRED": (-32008, 400, "FAILED_PRECONDITION"),
    "VERSION_NOT_SUPPORTED": (-32009, 400, "FAILED_PRECONDITION"),
}
JSON_RPC = {
    "JSON_PARSE": (-32700, 400, "INVALID_ARGUMENT"),
    "INVALID_REQUEST": (-32600, 400, "INVALID_ARGUMENT"),
    "METHOD_NOT_FOUND": (-32601, 501, "UNIMPLEMENTED"),
    "INVALID_PARAMS": (-32602, 400, "INVALID_ARGUMENT"),
    "INTERNAL_ERROR": (-32603, 500, "INTERNAL"),
}
OURS = {
    "WORKER_UNAVAILABLE": (-32000, 503, "UNAVAILABLE"),
    "WAITING_LIMIT_REACHED": (-32000, 503, "UNAVAILABLE"),
    "STREAM_LIMIT_REACHED": (-32000, 503, "UNAVAILABLE"),
    "OPEN_TASKS_LIMIT_REACHED": (-32000, 503, "UNAVAILABLE"),
    "STREAM_EXPIRED": (-32000, 503, "UNAVAILABLE"),
    "STREAM_TOO_SLOW": (-32000, 503, "UNAVAILABLE"),
    "BLOCKING_DEADLINE_EXCEEDED": (-32603, 504, "DEADLINE_EXCEEDED"),
    "RESULT_NOT_STORABLE": (-32004, 400, "FAILED_PRECONDITION"),
    "MESSAGE_ID_REUSED": (-32602, 400, "INVALID_ARGUMENT"),
    "REQUEST_TOO_LARGE": (-32600, 413, "RESOURCE_EXHAUSTED"),
    "REQUEST_TOO_SLOW": (-32600, 408, "DEADLINE_EXCEEDED"),
    "UNAUTHENTICATED": (-32041, 401, "UNAUTHENTICATED"),
    "PERMISSION_DENIED": (-32043, 403, "PERMISSION_DENIED"),
}


def info(error: A2AError) -> dict[str, Any]:
    return to_jsonrpc(error, 1)["error"]["data"][0]


def test_the_table_has_these_rows_and_no_other() -> None:
    assert {reason: row[:3] for reason, row in KINDS.items()} == PROTOCOL | JSON_RPC | OURS


@pytest.mark.parametrize("reason", KINDS)
def test_the_domain_says_whose_error_it_is(reason: str) -> None:
    assert info(A2AError(reason))["domain"] == ("outrider" if reason in OURS else "a2a-protocol.org")


@pytest.mark.parametrize("theirs", A2A_ERROR_MAPPING, ids=lambda theirs: theirs.__name__)
def test_the_protocols_rows_are_those_of_its_own_sdk(theirs: type) -> None:
    """But for an unknown method, which its REST table calls not found: 404 is for tasks alone."""
    mapping = A2A_ERROR_MAPPING[theirs]
    code, http, grpc = KINDS[mapping.reason][:3]
    assert code == JSON_RPC_ERROR_CODE_MAP[theirs]
    if mapping.reason != "METHOD_NOT_FOUND":
        assert (http, grpc) == (mapping.http_code, mapping.grpc_status)


def test_A79_404_is_for_a_task_that_is_not_there_and_503_comes_with_the_time_to_try_again() -> None:
    assert [reason for reason, kind in KINDS.items() if kind.http == 404] == ["TASK_NOT_FOUND"]
    for reason, kind in KINDS.items():
        assert (kind.http == 503) == (kind.code == -32000) == ("retry-after" in headers(A2AError(reason)))


@pytest.mark.parametrize("reason", KINDS)
def test_A78_details_are_a_list_of_typed_objects_with_the_error_info_first(reason: str) -> None:
    error = A2AError(reason, metadata={"taskId": "t", "limit": 16, "none": None})
    envelope = to_jsonrpc(error, "a")
    assert set(envelope) == {"jsonrpc", "id", "error"} and (envelope["jsonrpc"], envelope["id"]) == ("2.0", "a")
    assert set(envelope["error"]) == {"code", "message", "data"} and envelope["error"]["message"]
    assert info(error) == {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": KINDS[reason].domain,
        "metadata": {"taskId": "t", "limit": "16"},
    }
    for detail in envelope["error"]["data"]:
        kind = detail["@type"].removeprefix("type.googleapis.com/google.rpc.")
        message = getattr(error_details_pb2, kind)
        assert {key for key in detail if key != "@type"} <= {field.json_name for field in message.DESCRIPTOR.fields}


def test_A78_a_refused_field_is_named_beside_what_is_allowed() -> None:
    data = to_jsonrpc(invalid("message.parts[0].text", "must be a string"), 1)["error"]["data"]
    assert [item["@type"].rpartition(".")[2] for item in data] == ["ErrorInfo", "BadRequest"]
    violation = {"field": "message.parts[0].text", "description": "must be a string"}
    assert data[1]["fieldViolations"] == [violation]


def test_a_capacity_says_when_to_come_again() -> None:
    error = A2AError("STREAM_LIMIT_REACHED", metadata={"limit": 16}, retry_after_s=7)
    assert headers(error) == {"retry-after": "7"}
    assert to_jsonrpc(error, 1)["error"]["data"][1] == {
        "@type": "type.googleapis.com/google.rpc.RetryInfo",
        "retryDelay": "7s",
    }
    assert headers(A2AError("TASK_NOT_FOUND")) == {}


@pytest.mark.parametrize("reason", KINDS)
def test_over_json_rpc_errors_travel_in_200_but_for_the_few_that_others_must_see(reason: str) -> None:
    kept = {"UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403, "BLOCKING_DEADLINE_EXCEEDED": 504}
    status = 503 if KINDS[reason].code == -32000 else kept.get(reason, 200)
    assert http_status(A2AError(reason), "native") == status
    assert http_status(A2AError(reason), "200") == 200


@pytest.mark.parametrize("reason", KINDS)
def test_over_http_json_an_error_has_its_status_in_the_body_and_the_same_details(reason: str) -> None:
    error = A2AError(reason, metadata={"taskId": "t"}, violations=[("id", "is required")])
    told, envelope = to_rest(error), to_jsonrpc(error, 1)
    assert set(told) == {"error"} and set(told["error"]) == {"code", "status", "message", "details"}
    assert (told["error"]["code"], told["error"]["status"]) == KINDS[reason][1:3]
    assert told["error"]["details"] == envelope["error"]["data"]
    assert told["error"]["message"] == envelope["error"]["message"]


def test_A73_a_failure_of_ours_tells_its_id_alone() -> None:
    envelope = to_jsonrpc(internal("e-42"), 1)
    assert envelope["error"]["code"] == -32603
    assert info(internal("e-42"))["metadata"] == {"errorId": "e-42"}
    assert json.dumps(envelope).count("e-42") == 2


def test_an_error_that_the_table_does_not_have_cannot_be_raised() -> None:
    with pytest.raises(KeyError):
        A2AError("SOMETHING_ELSE")
