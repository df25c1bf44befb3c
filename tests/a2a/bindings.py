"""The bindings of the protocol, asked in the same words: a method and its params go in, one kind of answer comes out.

Every answer's shape is looked at here, once for each binding, so that tests compare what is said and not how.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
from a2a.types import a2a_pb2 as types

from tests.a2a import wire
from tests.support.server import Server
from web.a2a_errors import KINDS

Json = dict[str, Any]
A2A_JSON = "application/a2a+json"
# What each address looks like, from the protocol's own annotations and not from the server's table.
ADDRESSES = {
    "SendMessage": "POST /message:send",
    "SendStreamingMessage": "POST /message:stream",
    "GetTask": "GET /tasks/{id}",
    "ListTasks": "GET /tasks",
    "CancelTask": "POST /tasks/{id}:cancel",
    "SubscribeToTask": "POST /tasks/{id}:subscribe",
    "CreateTaskPushNotificationConfig": "POST /tasks/{taskId}/pushNotificationConfigs",
    "GetTaskPushNotificationConfig": "GET /tasks/{taskId}/pushNotificationConfigs/{id}",
    "ListTaskPushNotificationConfigs": "GET /tasks/{taskId}/pushNotificationConfigs",
    "DeleteTaskPushNotificationConfig": "DELETE /tasks/{taskId}/pushNotificationConfigs/{id}",
    "GetExtendedAgentCard": "GET /extendedAgentCard",
}


class Answer(NamedTuple):
    """What came of a call: a result, or the reason, message and details of an error. `status` is that of HTTP."""

    status: int
    result: Any = None
    reason: str = ""
    message: str = ""
    details: tuple[Json, ...] = ()

    @property
    def said(self) -> "Answer":
        """Without the status, which is a binding's own."""
        return self._replace(status=0)

    @property
    def metadata(self) -> Json:
        return self.details[0]["metadata"]

    @property
    def task(self) -> Json:
        assert not self.reason, self
        wire.strictly(self.result, types.SendMessageResponse())
        return self.result["task"]


class JsonRpc:
    """`POST /a2a`."""

    name = "JSONRPC"

    def status(self, reason: str) -> int:
        """The HTTP status of an error."""
        return KINDS[reason].http if KINDS[reason].http in (401, 403, 503, 504) else 200

    def post(self, server: Server, method: str, params: str | bytes | Iterator[bytes], **headers: str) -> Answer:
        """A call with params that are JSON text already, however odd."""
        if isinstance(params, str):
            params = f'{{"jsonrpc": "2.0", "id": "{method}", "method": "{method}", "params": {params}}}'
        return self._read(server.http.post("/a2a", content=params, headers=wire.VERSION | headers))

    def ask(self, server: Server, method: str, params: Json, **headers: str) -> Answer:
        return self.post(server, method, json.dumps(params), **headers)

    def _read(self, answer: httpx.Response) -> Answer:
        if "error" not in answer.json():
            return Answer(answer.status_code, wire.result(answer))
        error = wire.error(answer)
        reason = error["data"][0]["reason"]
        assert error["code"] == KINDS[reason].code and answer.status_code == self.status(reason)
        return refused(answer, reason, error["message"], error["data"])

    @contextmanager
    def stream(self, server: Server, method: str, params: Json) -> Iterator[Iterator[Json]]:
        """The StreamResponses; the details of an error as `{"error": […]}`."""
        with wire.stream(server, method, params) as frames:
            yield ({"error": frame["error"]["data"]} if "error" in frame else frame for frame in frames)


class Rest:
    """Addresses under `/a2a/rest`."""

    name = "HTTP+JSON"

    def status(self, reason: str) -> int:
        """The HTTP status of an error."""
        return KINDS[reason].http

    def post(self, server: Server, method: str, params: str | bytes | Iterator[bytes], **headers: str) -> Answer:
        """A call with a body that is JSON text already, however odd."""
        _, _, path = ADDRESSES[method].partition(" ")
        content = params.encode() if isinstance(params, str) else params
        return read(server.http.post(f"/a2a/rest{path}", content=content, headers=wire.VERSION | headers))

    def ask(self, server: Server, method: str, params: Json, **headers: str) -> Answer:
        return read(server.http.send(self._request(server.http, method, params, headers)))

    def _request(self, http: httpx.Client, method: str, params: Json, headers: dict[str, str]) -> httpx.Request:
        verb, _, path = ADDRESSES[method].partition(" ")
        named = {name: quote(str(value), safe="") for name, value in params.items() if f"{{{name}}}" in path}
        rest = {name: value for name, value in params.items() if name not in named}
        sent: Json = {"json": rest} if verb == "POST" else {"params": rest}
        return http.build_request(verb, f"/a2a/rest{path.format(**named)}", headers=wire.VERSION | headers, **sent)

    @contextmanager
    def stream(self, server: Server, method: str, params: Json) -> Iterator[Iterator[Json]]:
        """The StreamResponses; the details of an error as `{"error": […]}`."""
        with httpx.Client(base_url=server.url, timeout=20, trust_env=False) as client:
            response = client.send(self._request(client, method, params, {}), stream=True)
            try:
                yield frames(response)
            finally:
                response.close()


def read(answer: httpx.Response) -> Answer:
    """An answer of HTTP+JSON, after a look at its shape."""
    body = answer.json()
    if answer.is_success:
        assert answer.status_code == 200 and answer.headers["content-type"] == A2A_JSON and "error" not in body
        return Answer(200, body)
    assert answer.headers["content-type"] == "application/json"
    assert body.keys() == {"error"} and body["error"].keys() == {"code", "status", "message", "details"}
    error = body["error"]
    assert error["code"] == answer.status_code
    reason = error["details"][0]["reason"]
    if reason != "METHOD_NOT_FOUND":  # an address that is none has 404 or 405, whatever the table says of methods
        assert (error["code"], error["status"]) == (KINDS[reason].http, KINDS[reason].grpc)
    return refused(answer, reason, error["message"], error["details"])


def refused(answer: httpx.Response, reason: str, message: str, details: list[Json]) -> Answer:
    """An error over HTTP, after a look at its shape: a header says when to come again, as its details do."""
    assert well_formed(reason, details, answer.text) == [f"{wait}s" for wait in answer.headers.get_list("retry-after")]
    return Answer(answer.status_code, None, reason, message, tuple(details))


def well_formed(reason: str, details: list[Json], text: str) -> list[str]:
    """F064, A78: typed details, an ErrorInfo first with values that are text; and nothing that names our insides.

    Returns how long to wait, once where the error is one that passes.
    """
    assert all(detail["@type"].startswith("type.googleapis.com/google.rpc.") for detail in details)
    info, *others = details
    assert info["@type"].endswith(".ErrorInfo") and info["domain"] == KINDS[reason].domain
    assert all(isinstance(value, str) for value in info["metadata"].values())
    delays = [detail["retryDelay"] for detail in others if detail["@type"].endswith(".RetryInfo")]
    assert len(delays) == (KINDS[reason].http == 503)
    for word in ("Traceback", ".py", "Error(", "sqlite", "site-packages", "http://", "https://"):
        assert word not in text, text
    return delays


def frames(response: httpx.Response) -> Iterator[Json]:
    """The frames of a stream of HTTP+JSON: StreamResponses without an envelope, or an error by its event's name."""
    assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
    event = ""
    for line in response.iter_lines():
        name, _, data = line.partition(": ")
        if name == "event":
            event = data
        elif name == "data":
            frame = json.loads(data)
            assert ("error" in frame) == (event == "error")
            if event:
                yield {"error": frame["error"]["details"]}
            else:
                wire.strictly(frame, types.StreamResponse())
                yield frame
        else:
            assert not name, line


BINDINGS = (JsonRpc(), Rest())
