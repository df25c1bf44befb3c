"""What gRPC has of its own: messages, metadata and statuses. What all bindings have alike is asked in `test_bindings.py`."""

import json
import time
from typing import Any

import grpc
import pytest

from tests.a2a import over_grpc, wire
from tests.a2a.over_grpc import Grpc, channel
from tests.a2a.wire import COMPLETED, Json, message, said
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of

GRPC = Grpc()
NOTHING: tuple[tuple[str, str], ...] = ()
CURRENT = tuple(over_grpc.VERSION.items())


def fails(server: Server, path: str, request: bytes, metadata: Any = CURRENT, **more: Any) -> grpc.RpcError:
    """The error of a call to any path."""
    with channel(server) as connection, pytest.raises(grpc.RpcError) as failed:
        connection.unary_unary(path)(request, metadata=metadata, timeout=10, **more)
    return failed.value


def nested(depth: int, inner: Any = 1) -> Any:
    """An object in an object, and so on."""
    for _ in range(depth):
        inner = {"in": inner}
    return inner


# --- what does not reach a method -------------------------------------------------------------------------------------


@pytest.mark.parametrize("metadata", [NOTHING, (("a2a-version", "0.3"),), (("a2a-version", "2.0"),)], ids=str)
def test_a60_a_call_without_the_methods_version_is_told_which_it_is(shared: Server, metadata: Any) -> None:
    answer = over_grpc.refused(fails(shared, "/lf.a2a.v1.A2AService/GetTask", b"", metadata))
    assert (answer.reason, answer.metadata) == ("VERSION_NOT_SUPPORTED", {"supported": "1.0"})


@pytest.mark.parametrize(
    "path", ["/lf.a2a.v1.A2AService/Nope", "/grpc.health.v1.Health/Check", "/a2a.v1.A2AService/GetTask"]
)
def test_a78_what_is_no_method_has_a_status_with_details_too(shared: Server, path: str) -> None:
    error: Any = fails(shared, path, b"")
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert over_grpc.refused(error).reason == "METHOD_NOT_FOUND"


@pytest.mark.parametrize("sent", [b"\xff\xff", b"\x0a\x01\xff"], ids=["no message", "a text that is none"])
def test_what_is_no_message_of_the_method_is_refused_in_words_of_ours(shared: Server, sent: bytes) -> None:
    answer = over_grpc.refused(fails(shared, "/lf.a2a.v1.A2AService/GetTask", sent))
    assert answer.reason == "INVALID_PARAMS" and answer.details[1]["fieldViolations"][0]["field"] == "request"


def test_a85_an_object_too_deep_for_such_a_message_is_refused_for_its_depth_and_one_less_is_taken(
    shared: Server,
) -> None:
    with wire.nothing_stored(shared):
        answer = GRPC.ask(shared, "SendMessage", {"message": message(parts=[{"data": nested(33)}])})
    assert answer.reason == "INVALID_PARAMS" and "32 levels" in answer.message
    task = GRPC.ask(shared, "SendMessage", {"message": message(parts=[{"data": nested(32)}])}).task
    assert GRPC.ask(shared, "GetTask", {"id": task["id"]}).result == task
    assert task["artifacts"][0]["parts"][0]["data"] == nested(32)


def test_a84_a_message_is_held_to_the_size_of_a_body_by_us_and_a_larger_one_by_the_library(shared: Server) -> None:
    path = "/lf.a2a.v1.A2AService/SendMessage"
    ours, theirs = (fails(shared, path, b"x" * (size << 20)) for size in (5, 9))
    assert over_grpc.refused(ours).reason == "REQUEST_TOO_LARGE"
    code: Any = theirs
    assert code.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_what_is_compressed_is_not_inflated(shared: Server) -> None:
    request = over_grpc.message("SendMessage", {"message": message("x" * 10_000)})
    with wire.nothing_stored(shared):
        error: Any = fails(shared, "/lf.a2a.v1.A2AService/SendMessage", request, compression=grpc.Compression.Gzip)
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


# --- from JSON to messages and back -----------------------------------------------------------------------------------


def test_a_nul_is_made_clean_as_it_is_everywhere(shared: Server) -> None:
    task = GRPC.ask(shared, "SendMessage", {"message": message("a\0b")}).task
    assert answer_of(task) == "a\ufffdb"


def test_files_come_and_go_as_bytes(shared: Server) -> None:
    part = {"raw": "aGVsbG8=", "mediaType": "text/plain", "filename": "hello.txt"}
    task = GRPC.ask(shared, "SendMessage", {"message": message(parts=[part])}).task
    assert task["history"][0]["parts"] == [part] == wire.get(shared, task["id"])["history"][0]["parts"]


def test_a86_a_number_that_no_double_comes_near_is_read_elsewhere_and_said_here(shared: Server) -> None:
    context, number = wire.fresh("huge"), 10**400
    sent = json.dumps(message(parts=[{"data": {"n": "HERE"}}], contextId=context)).replace('"HERE"', str(number))
    envelope = f'{{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {{"message": {sent}}}}}'
    task = wire.result(shared.http.post("/a2a", content=envelope, headers=wire.VERSION))["task"]
    assert shared.task(task["id"])["artifacts"][0]["parts"][0]["data"] == {"n": number}
    for method, params in (("GetTask", {"id": task["id"]}), ("ListTasks", {"contextId": context})):
        answer = GRPC.ask(shared, method, params)
        assert answer.reason == "UNSUPPORTED_OPERATION" and "another binding" in answer.message


def test_a_megabyte_of_numbers_holds_nobody_up(shared: Server) -> None:
    large = {"message": message(parts=[{"data": list(range(60_000))}])}
    with channel(shared) as connection:
        request = over_grpc.message("SendMessage", large)
        answer = over_grpc.call(connection, "SendMessage").future(request, metadata=CURRENT, timeout=20)
        longest = 0.0
        while not answer.done():
            began = time.monotonic()
            assert shared.http.get("/healthz").is_success
            longest = max(longest, time.monotonic() - began)
        assert over_grpc.read("SendMessage", answer.result())["task"]["status"]["state"] == COMPLETED
    assert longest < 1


# --- clients that are gone --------------------------------------------------------------------------------------------


def waiting(server: Server) -> Json:
    """How many blocking sends and streams there are."""
    lines = server.http.get("/metrics").text.splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if line.startswith(("outrider_waiting", "outrider_streams ")))
    return {name: int(float(value)) for name, value in found.items()}


NOBODY = {"outrider_waiting_requests": 0, "outrider_streams": 0}


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
@pytest.mark.parametrize("by", ["a cancel", "its deadline", "its connection"])
def test_f054_a05_a_client_that_is_gone_leaves_its_task_alone_and_its_place_to_others(
    shared: Server, model: ScriptedModel, method: str, by: str
) -> None:
    model.rules([{"gate": "g", "text": "finished all the same"}])
    sent = said()
    request = over_grpc.message(method, {"message": sent})
    with channel(shared) as connection:
        call: Any = over_grpc.call(connection, method)
        asked = {"metadata": CURRENT, "timeout": 1 if by == "its deadline" else 20}
        told = call.future(request, **asked) if method == "SendMessage" else call(request, **asked)
        model.held_at("g")
        shared.wait(lambda: waiting(shared) != NOBODY or by == "its deadline")
        if by == "a cancel":
            told.cancel()
        elif by == "its connection":
            connection.close()
        shared.wait(lambda: waiting(shared) == NOBODY)
    model.open("g")
    task = wire.start(shared, sent)
    assert answer_of(shared.ended(task["id"])) == "finished all the same"
    assert len(model.requests()) == 1
