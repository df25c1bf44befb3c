"""The protocol's version 0.3 as one more binding: the same questions in its words, and its answers told in those of 1.0.

What it spells otherwise stands here a second time, so that the server's table is not its own judge; and the official
types of 0.3 must know every field of an answer.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from a2a.compat.v0_3 import types as official
from pydantic import BaseModel

from tests.a2a.bindings import Answer, JsonRpc, refused
from tests.support.server import Server
from web.a2a_errors import KINDS

Json = dict[str, Any]
METHODS = {
    "SendMessage": "message/send",
    "SendStreamingMessage": "message/stream",
    "GetTask": "tasks/get",
    "ListTasks": "tasks/list",
    "CancelTask": "tasks/cancel",
    "SubscribeToTask": "tasks/resubscribe",
    "CreateTaskPushNotificationConfig": "tasks/pushNotificationConfig/set",
    "GetTaskPushNotificationConfig": "tasks/pushNotificationConfig/get",
    "ListTaskPushNotificationConfigs": "tasks/pushNotificationConfig/list",
    "DeleteTaskPushNotificationConfig": "tasks/pushNotificationConfig/delete",
    "GetExtendedAgentCard": "agent/getAuthenticatedExtendedCard",
}
STATES = {
    "TASK_STATE_SUBMITTED": "submitted",
    "TASK_STATE_WORKING": "working",
    "TASK_STATE_COMPLETED": "completed",
    "TASK_STATE_FAILED": "failed",
    "TASK_STATE_CANCELED": "canceled",
    "TASK_STATE_INPUT_REQUIRED": "input-required",
    "TASK_STATE_REJECTED": "rejected",
    "TASK_STATE_AUTH_REQUIRED": "auth-required",
}
CURRENT_STATES = {old: new for new, old in STATES.items()}
FILE = {"raw": "bytes", "url": "uri", "filename": "name", "mediaType": "mimeType"}


def post(server: Server, method: str, params: Any, **headers: str) -> httpx.Response:
    """One request of version 0.3, which no header names; the answer as it came."""
    request = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
    return server.http.post("/a2a", content=json.dumps(request), headers=headers)


class Former(JsonRpc):
    """`POST /a2a` without a version."""

    name = "0.3"

    def post(self, server: Server, method: str, params: str | bytes | Iterator[bytes], **headers: str) -> Answer:
        if isinstance(params, str):
            return self.ask(server, method, json.loads(params), **headers)
        return self._told(method, server.http.post("/a2a", content=params, headers=headers))

    def ask(self, server: Server, method: str, params: Json, **headers: str) -> Answer:
        return self._told(method, post(server, METHODS[method], asked(method, params), **headers))

    def _told(self, method: str, answer: httpx.Response) -> Answer:
        body = answer.json()
        if "error" in body:
            error, reason = body["error"], body["error"]["data"][0]["reason"]
            assert error["code"] == KINDS[reason].code and answer.status_code == self.status(reason)
            return refused(answer, reason, error["message"], error["data"])
        assert body.keys() == {"jsonrpc", "id", "result"} and body["id"] == METHODS[method]
        return Answer(answer.status_code, RESULTS[method](body["result"]))

    @contextmanager
    def stream(self, server: Server, method: str, params: Json) -> Iterator[Iterator[Json]]:
        request = {"jsonrpc": "2.0", "id": method, "method": METHODS[method], "params": asked(method, params)}
        with (
            httpx.Client(base_url=server.url, timeout=20, trust_env=False) as client,
            client.stream("POST", "/a2a", json=request) as response,
        ):
            yield _frames(response, method)


def _frames(response: httpx.Response, rpc_id: str) -> Iterator[Json]:
    """StreamResponses; after a final one there is no other."""
    assert response.headers["content-type"].startswith("text/event-stream")
    final = False
    for line in response.iter_lines():
        if not line.startswith("data: "):
            continue
        envelope = json.loads(line.removeprefix("data: "))
        assert envelope["jsonrpc"] == "2.0" and envelope["id"] == rpc_id and not final
        if "error" in envelope:
            yield {"error": envelope["error"]["data"]}
            return
        final = envelope["result"].get("final", False)
        yield event(envelope["result"])


# --- from 1.0 to 0.3: what is asked ------------------------------------------------------------------------------------


def asked(method: str, given: Any) -> Any:
    """Params in the words of 0.3; what is odd in them stays as odd."""
    sent = dict(given)
    if method in ("SendMessage", "SendStreamingMessage"):
        if isinstance(sent.get("message"), dict):
            sent["message"] = message(sent["message"])
        if "configuration" in sent:
            sent["configuration"] = _configuration(sent["configuration"])
    elif method == "ListTasks" and "status" in sent:
        known = {**STATES, **CURRENT_STATES, "TASK_STATE_UNSPECIFIED": ""}  # a state of the other version is none here
        sent["status"] = known.get(sent["status"], sent["status"])
    elif method == "CreateTaskPushNotificationConfig":
        return {"taskId": sent.pop("taskId"), "pushNotificationConfig": _config(sent)}
    elif method.endswith(("PushNotificationConfig", "PushNotificationConfigs")):
        named = {"id": sent.pop("taskId")}
        return named | ({"pushNotificationConfigId": sent["id"]} if "id" in sent else {})
    return sent


def message(sent: Json) -> Json:
    """A message in the words of 0.3."""
    role = {"ROLE_USER": "user", "ROLE_AGENT": "agent"}[sent["role"]]
    return {**sent, "kind": "message", "role": role, "parts": [_part(part) for part in sent["parts"]]}


def _part(sent: Json) -> Json:
    (content, *more) = [name for name in ("text", "data", "raw", "url") if name in sent]
    about = {"metadata": sent["metadata"]} if "metadata" in sent else {}
    if more:
        return {"kind": content + more[0], **sent}
    if content == "text":
        return {"kind": "text", "text": sent["text"], **about}
    if content == "data":
        return {"kind": "data", "data": sent["data"], **about}
    return {"kind": "file", "file": {old: sent[new] for new, old in FILE.items() if new in sent}, **about}


def _configuration(sent: Json) -> Json:
    made = dict(sent)
    if "returnImmediately" in made:
        at_once = made.pop("returnImmediately")
        made["blocking"] = not at_once if isinstance(at_once, bool) else at_once
    if "taskPushNotificationConfig" in made:
        made["pushNotificationConfig"] = _config(made.pop("taskPushNotificationConfig"))
    return made


def _config(sent: Json) -> Json:
    if "authentication" not in sent:
        return sent
    scheme = {"schemes": [sent["authentication"]["scheme"]]}
    return sent | {"authentication": scheme | {k: v for k, v in sent["authentication"].items() if k != "scheme"}}


# --- from 0.3 to 1.0: what is answered ---------------------------------------------------------------------------------


def known(told: Json, kind: type[BaseModel]) -> None:
    """The official types know every field of it."""
    assert kind.model_validate(told).model_dump(mode="json", by_alias=True, exclude_unset=True) == told


def task(told: Json) -> Json:
    known(told, official.Task)
    made = {**told, "status": _status(told["status"])}
    assert made.pop("kind") == "task"
    if "history" in told:
        made["history"] = [_message(said) for said in told["history"]]
    if "artifacts" in told:
        made["artifacts"] = [_artifact(artifact) for artifact in told["artifacts"]]
    return made


def event(told: Json) -> Json:
    """A StreamResponse."""
    made = dict(told)
    match made.pop("kind"):
        case "task":
            return {"task": task(told)}
        case "status-update":
            known(told, official.TaskStatusUpdateEvent)
            made["status"] = _status(told["status"])
            ended = told["status"]["state"] in ("completed", "canceled", "failed", "rejected", "input-required")
            assert made.pop("final") is ended
            return {"statusUpdate": made}
        case "artifact-update":
            known(told, official.TaskArtifactUpdateEvent)
            return {"artifactUpdate": made | {"artifact": _artifact(told["artifact"])}}
    raise AssertionError(told)


def _status(told: Json) -> Json:
    made = told | {"state": CURRENT_STATES[told["state"]]}
    return made | {"message": _message(told["message"])} if "message" in told else made


def _message(told: Json) -> Json:
    made = {**told, "role": {"user": "ROLE_USER", "agent": "ROLE_AGENT"}[told["role"]]}
    assert made.pop("kind") == "message"
    return made | {"parts": [_current_part(part) for part in told["parts"]]}


def _artifact(told: Json) -> Json:
    return told | {"parts": [_current_part(part) for part in told["parts"]]}


def _current_part(told: Json) -> Json:
    made = dict(told)
    kind = made.pop("kind")
    if kind == "file":
        file = made.pop("file")
        return {new: file[old] for new, old in FILE.items() if old in file} | made
    assert kind in made
    return made


def _current_config(told: Json) -> Json:
    known(told, official.TaskPushNotificationConfig)
    made = {"taskId": told["taskId"], **told["pushNotificationConfig"]}
    if "authentication" in made:
        (scheme,) = made["authentication"]["schemes"]
        made["authentication"] = {"scheme": scheme}
    return made


def _nothing(told: None) -> Json:
    assert told is None
    return {}


RESULTS: dict[str, Callable[[Any], Json]] = {
    "SendMessage": lambda told: {"task": task(told)},
    "GetTask": task,
    "ListTasks": lambda told: told | {"tasks": [task(found) for found in told["tasks"]]},
    "CancelTask": task,
    "CreateTaskPushNotificationConfig": _current_config,
    "GetTaskPushNotificationConfig": _current_config,
    "ListTaskPushNotificationConfigs": lambda told: {"configs": [_current_config(config) for config in told]},
    "DeleteTaskPushNotificationConfig": _nothing,
}
