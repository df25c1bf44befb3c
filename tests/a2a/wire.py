"""What goes over the wire to an A2A server: messages, envelopes, frames, read as strictly as the official types are.

Also what a stranger finds in the database file, because "nothing was stored" is seen nowhere else.
"""

import copy
import itertools
import json
import socket
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

import httpx
from a2a.types import a2a_pb2 as types
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from tests.support.server import ENDED, Server

Json = dict[str, Any]
NUMBERS = itertools.count(1)
VERSION = {"A2A-Version": "1.0"}
SUBMITTED, WORKING = "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"
COMPLETED, FAILED, CANCELED = "TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED"


def fresh(prefix: str = "c") -> str:
    """An id that no other test uses."""
    return f"{prefix}-{next(NUMBERS)}"


def message(text: str = "hello", skill: str | None = "echo", **fields: Any) -> Json:
    """A message as the protocol writes it, with an id of its own; by default one that the echo profile answers."""
    chosen = {"metadata": {"skill": skill}} if skill else {}
    return {"messageId": fresh("m"), "role": "ROLE_USER", "parts": [{"text": text}], **chosen, **fields}


def said(text: str = "hello", **fields: Any) -> Json:
    """A message for the chat profile, which asks the scripted model."""
    return message(text, None, **fields)


def post(server: Server, method: str, params: Any, **headers: str) -> httpx.Response:
    """One JSON-RPC request of version 1.0; the answer as it came."""
    request = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
    return server.http.post("/a2a", json=request, headers=VERSION | headers)


def send(server: Server, sent: Json, **configuration: Any) -> Json:
    """SendMessage that must succeed; its task."""
    answer = result(post(server, "SendMessage", {"message": sent, "configuration": configuration}))
    strictly(answer, types.SendMessageResponse())
    return answer["task"]


def start(server: Server, sent: Json) -> Json:
    """SendMessage that returns at once; its task."""
    return send(server, sent, returnImmediately=True)


def get(server: Server, task_id: str, **more: Any) -> Json:
    """GetTask that must succeed."""
    task = result(post(server, "GetTask", {"id": task_id, **more}))
    strictly(task, types.Task())
    return task


def cancel(server: Server, task_id: str) -> Json:
    """CancelTask that must succeed."""
    task = result(post(server, "CancelTask", {"id": task_id}))
    strictly(task, types.Task())
    return task


def result(answer: httpx.Response) -> Json:
    body = answer.json()
    assert answer.status_code == 200 and "error" not in body, body
    assert body.keys() == {"jsonrpc", "id", "result"} and body["jsonrpc"] == "2.0"
    return body["result"]


def strictly(value: Json, kind: Message) -> None:
    """The official types know every field of it and every value of its enums."""
    ParseDict(value, kind)


def error(answer: httpx.Response) -> Json:
    """The error of an answer, after a look at its shape: an ErrorInfo first, and nothing that names our insides."""
    assert answer.headers["content-type"] == "application/json", answer.text
    body = answer.json()
    assert body.keys() == {"jsonrpc", "id", "error"}, body
    found = body["error"]
    assert found.keys() == {"code", "message", "data"}
    assert all("@type" in detail for detail in found["data"])
    info = found["data"][0]
    assert info["@type"].endswith("google.rpc.ErrorInfo")
    assert all(isinstance(value, str) for value in info["metadata"].values())
    for word in ("Traceback", ".py", "Error(", "sqlite", "site-packages", "http://", "https://"):
        assert word not in answer.text, answer.text
    return found


def told(answer: httpx.Response) -> tuple[int, int, str]:
    """(HTTP status, code, reason) of an error."""
    found = error(answer)
    return answer.status_code, found["code"], found["data"][0]["reason"]


def info(answer: httpx.Response) -> dict[str, str]:
    """The metadata of an error's ErrorInfo."""
    return error(answer)["data"][0]["metadata"]


def retry_asked(answer: httpx.Response) -> bool:
    """Whether an error says when to come again, in the header and in the body alike."""
    (delay,) = [detail["retryDelay"] for detail in error(answer)["data"] if detail["@type"].endswith("RetryInfo")]
    return delay == f"{answer.headers['retry-after']}s"


# --- streams --------------------------------------------------------------------------------------------------------


@contextmanager
def stream(server: Server, method: str, params: Json, buffer: int = 0) -> Iterator["Frames"]:
    """An open stream: an HTTP response whose body is being read. `buffer` bounds what waits unread at the client."""
    request = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
    with (
        httpx.Client(base_url=server.url, timeout=20, trust_env=False, transport=_buffering(buffer)) as client,
        client.stream("POST", "/a2a", json=request, headers=VERSION) as response,
    ):
        yield Frames(response, method)


def _buffering(most: int) -> httpx.HTTPTransport:
    return httpx.HTTPTransport(socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, most)] if most else None)


def subscribed(server: Server, task_id: str) -> AbstractContextManager["Frames"]:
    """The open stream of a task."""
    return stream(server, "SubscribeToTask", {"id": task_id})


def streamed(server: Server, sent: Json) -> list[Json]:
    """SendStreamingMessage, read to its end; each frame's result."""
    with stream(server, "SendStreamingMessage", {"message": sent}) as frames:
        return list(frames)


@contextmanager
def torn(server: Server, method: str, sent: Json, read: int = 0) -> Iterator[None]:
    """A client that reads so many bytes of an answer and whose socket is then reset, without a farewell."""
    request = httpx.Request(
        "POST",
        f"{server.url}/a2a",
        json={"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": sent}},
        headers=VERSION,
    )
    head = "\r\n".join(f"{name}: {value}" for name, value in request.headers.items())
    with socket.socket() as client:
        client.settimeout(20)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # what it does not read stays with the server
        client.connect(("127.0.0.1", server.port))
        client.sendall(f"POST /a2a HTTP/1.1\r\n{head}\r\n\r\n".encode() + request.read())
        while read > 0:
            read -= len(client.recv(read))
        yield
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Frames:
    """The frames of a stream, one after another: results as the official types read them, or an error's envelope."""

    def __init__(self, response: httpx.Response, rpc_id: str) -> None:
        self.response = response
        self._rpc_id = rpc_id
        self._lines = response.iter_lines()
        self.comments = 0

    def __iter__(self) -> Iterator[Json]:
        return self

    def __next__(self) -> Json:
        for line in self._lines:
            if line.startswith(":"):
                self.comments += 1
            elif line:
                name, _, data = line.partition(": ")
                assert name == "data", line
                return self._read(json.loads(data))
        raise StopIteration

    def comment(self) -> None:
        """Reads on to the next comment; a frame before it is not expected."""
        for line in self._lines:
            if line.startswith(":"):
                self.comments += 1
                return
            assert not line, line
        raise AssertionError("it has ended")

    def _read(self, envelope: Json) -> Json:
        assert envelope["jsonrpc"] == "2.0" and envelope["id"] == self._rpc_id
        if "error" in envelope:
            return envelope
        strictly(envelope["result"], types.StreamResponse())
        return envelope["result"]


def replayed(frames: list[Json]) -> Json:
    """What a client has that takes the first task and applies every event to it, as the protocol says: what is appended are parts."""
    task = copy.deepcopy(frames[0]["task"])
    artifacts = {artifact["artifactId"]: artifact for artifact in task.pop("artifacts", [])}
    for frame in copy.deepcopy(frames[1:]):
        if "statusUpdate" in frame:
            task |= {name: value for name, value in frame["statusUpdate"].items() if name in ("status", "metadata")}
            continue
        update = frame["artifactUpdate"]
        artifact = update["artifact"]
        if update.get("append"):
            artifacts[artifact["artifactId"]]["parts"] += artifact["parts"]
        else:
            artifacts[artifact["artifactId"]] = artifact
    if artifacts or task["status"]["state"] in ENDED:
        task["artifacts"] = list(artifacts.values())
    return task


# --- what is stored -------------------------------------------------------------------------------------------------


# What taking something in writes; a task that still runs meanwhile adds rows elsewhere.
TAKEN_IN = {
    "sessions": "1",
    "receipts": "1",
    "tasks": "1",
    "messages": "role = 'user'",
    "runs": "kind in ('turn', 'job', 'dispatch')",
    "jobs": "1",
    "batches": "1",
}


def rows(server: Server) -> dict[str, int]:
    """How many rows there are, as a stranger to the server sees them, in all tables where taking something in shows."""
    with closing(sqlite3.connect(server.data / "outrider.db")) as stranger:
        return {
            table: stranger.execute(f"select count(*) from {table} where {which}").fetchone()[0]
            for table, which in TAKEN_IN.items()
        }


@contextmanager
def nothing_stored(server: Server) -> Iterator[None]:
    """What is done meanwhile takes nothing in: no session, no task, no message, no work."""
    before = rows(server)
    yield
    assert rows(server) == before
