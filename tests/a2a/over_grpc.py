"""gRPC as one more binding: the same questions as messages of protocol buffers, its answers told in the protocol's JSON.

What such a message cannot say (a number that is a text, an unknown name of an enum) is `Unsayable`. What it cannot tell
from left out (empty lists and texts, a time's empty fraction) is put back as the other bindings write it.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from a2a.types import a2a_pb2 as types
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2 as _error_details  # noqa: F401 - the types of the details, found by their names
from google.rpc.status_pb2 import Status

from tests.a2a.bindings import Answer, well_formed
from tests.support.server import ENDED, Server, free_port
from web.a2a_errors import KINDS

Json = dict[str, Any]
SERVICE = types.DESCRIPTOR.services_by_name["A2AService"]
VERSION = {"a2a-version": "1.0"}
UNBOUNDED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Unsayable(Exception):
    """No message of protocol buffers says this."""


def served() -> dict[str, str]:
    """The setting by which a server serves gRPC too."""
    return {"OUTRIDER_GRPC_PORT": str(free_port())}


@contextmanager
def channel(server: Server, *options: tuple[str, int]) -> Iterator[grpc.Channel]:
    """A connection of its own."""
    address = f"127.0.0.1:{server.env['OUTRIDER_GRPC_PORT']}"
    own = ("grpc.use_local_subchannel_pool", 1)
    with grpc.insecure_channel(address, options=[*UNBOUNDED, own, *options]) as opened:
        yield opened


def call(connection: grpc.Channel, method: str) -> Any:
    """The method as a function of bytes, whose `future` is the call under way."""
    path = f"/{SERVICE.full_name}/{method}"
    if SERVICE.methods_by_name[method].server_streaming:
        return connection.unary_stream(path)
    return connection.unary_unary(path)


def message(method: str, params: Json) -> bytes:
    """Params as the method's message. Raises Unsayable."""
    if any(isinstance(params.get(name), str) for name in ("historyLength", "pageSize")):
        raise Unsayable
    try:
        return ParseDict(params, GetMessageClass(SERVICE.methods_by_name[method].input_type)()).SerializeToString()
    except ParseError as error:
        raise Unsayable from error


class Grpc:
    """The service on `OUTRIDER_GRPC_PORT`."""

    name = "GRPC"

    def status(self, reason: str) -> int:
        """The HTTP status that stands beside the gRPC one in the table."""
        return KINDS[reason].http

    def post(self, server: Server, method: str, params: str | bytes | Iterator[bytes], **headers: str) -> Answer:
        """A call with params that are JSON text, or with bytes, however odd."""
        if isinstance(params, str):
            return self.ask(server, method, json.loads(params), **headers)
        return self._answer(server, method, params if isinstance(params, bytes) else b"".join(params), headers)

    def ask(self, server: Server, method: str, params: Json, **headers: str) -> Answer:
        answer = self._answer(server, method, message(method, params), headers)
        if method == "ListTasks" and params.get("includeArtifacts") and answer.result:
            for task in answer.result["tasks"]:
                task.setdefault("artifacts", [])
        return answer

    def _answer(self, server: Server, method: str, request: bytes, headers: dict[str, str]) -> Answer:
        sent = {name.lower(): value for name, value in (VERSION | headers).items()}
        with channel(server) as connection:
            try:
                told = call(connection, method)(request, metadata=tuple(sent.items()), timeout=20)
                if SERVICE.methods_by_name[method].server_streaming:
                    told = next(told)
            except grpc.RpcError as error:
                return refused(error)
        return Answer(200, read(method, told))

    @contextmanager
    def stream(self, server: Server, method: str, params: Json) -> Iterator[Iterator[Json]]:
        """The StreamResponses; the details of an error as `{"error": […]}`."""
        with channel(server) as connection:
            told = call(connection, method)(message(method, params), metadata=tuple(VERSION.items()), timeout=20)
            yield frames(told)
            told.cancel()


def frames(told: Iterator[bytes]) -> Iterator[Json]:
    """What a stream tells, an error last where it has one."""
    try:
        for item in told:
            yield read("SubscribeToTask", item)
    except grpc.RpcError as error:
        yield {"error": list(refused(error).details)}


def refused(error: grpc.RpcError) -> Answer:
    """A status and what goes with it, after a look at its shape: the very code and message stand in the details too."""
    call: Any = error
    told = Status.FromString(dict(call.trailing_metadata())["grpc-status-details-bin"])
    assert (told.code, told.message) == (call.code().value[0], call.details())
    details = MessageToDict(told)["details"]
    details[0].setdefault("metadata", {})
    reason = details[0]["reason"]
    assert call.code().name == KINDS[reason].grpc
    well_formed(reason, details, str(told))
    return Answer(KINDS[reason].http, None, reason, told.message, tuple(details))


def read(method: str, told: bytes) -> Json:
    """An answer in the protocol's JSON."""
    made = MessageToDict(GetMessageClass(SERVICE.methods_by_name[method].output_type).FromString(told))
    if method == "ListTasks":
        empty: Json = {"tasks": [], "nextPageToken": "", "totalSize": 0}
        for task in made.get("tasks", []):
            _restore_time(task["status"])
        return empty | made
    if method == "ListTaskPushNotificationConfigs":
        return {"configs": [], **made}
    if method in ("GetTask", "CancelTask"):
        _restore(made)
    for name, inner in made.items():
        if name == "task":
            _restore(inner)
        elif name == "statusUpdate":
            _restore_time(inner["status"])
        elif name == "artifactUpdate":
            inner.setdefault("lastChunk", False)
    return made


def _restore(task: Json) -> None:
    _restore_time(task["status"])
    if task["status"]["state"] in ENDED:
        task.setdefault("artifacts", [])


def _restore_time(status: Json) -> None:
    if "." not in status["timestamp"]:
        status["timestamp"] = status["timestamp"].replace("Z", ".000Z")
