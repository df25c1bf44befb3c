"""The protocol's JavaScript client, which shares no code with the Python one, gets the same from the same address."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as types
from google.protobuf.json_format import MessageToDict

from tests.a2a import wire
from tests.a2a.javascript import JavaScriptClient, Refused
from tests.support.scripted import ScriptedModel
from tests.support.server import Server

Run = Callable[..., Any]
PARTS = [
    {"text": "echo: first"},
    {"data": {"n": [1, 2.5, None, True], "deep": {"ü": "日本"}}, "mediaType": "application/json"},
]


CURRENT = ["JSONRPC", "HTTP+JSON"]


@pytest.fixture(scope="module", params=[*CURRENT, "0.3"])
def client(request: pytest.FixtureRequest, shared: Server) -> Iterator[JavaScriptClient]:
    with JavaScriptClient(shared.url, request.param) as client:
        yield client


def asked(text: str, skill: str = "echo", context: str | None = None, **more: Any) -> dict[str, Any]:
    message = wire.message(text, skill) | ({"contextId": context} if context else {})
    return {"message": message, **more}


def text_of(task: dict[str, Any]) -> str:
    return "".join(part["text"] for artifact in task["artifacts"] for part in artifact["parts"])


@pytest.mark.parametrize("client", CURRENT, indirect=True)
def test_the_card_is_one_that_it_can_speak_to(shared: Server, client: JavaScriptClient) -> None:
    card = client.call("card")
    interfaces = {
        (face["protocolBinding"], face["protocolVersion"], face["url"]) for face in card["supportedInterfaces"]
    }
    assert ("JSONRPC", "1.0", f"{shared.url}/a2a") in interfaces
    assert ("HTTP+JSON", "1.0", f"{shared.url}/a2a/rest") in interfaces


@pytest.mark.parametrize("client", ["0.3"], indirect=True)
def test_a97_what_it_makes_of_the_fields_of_0_3_is_an_address_of_that_version(
    shared: Server, client: JavaScriptClient
) -> None:
    (first, *_) = client.call("card")["supportedInterfaces"]
    assert (first["protocolBinding"], first["protocolVersion"], first["url"]) == ("JSONRPC", "0.3", f"{shared.url}/a2a")


def test_a_blocking_send_answers_with_the_finished_task(client: JavaScriptClient) -> None:
    task = client.call("sendMessage", **asked("to and fro"))
    assert task["status"]["state"] == "TASK_STATE_COMPLETED" and text_of(task) == "to and fro"
    assert client.call("getTask", id=task["id"])["artifacts"] == task["artifacts"]


def test_a_send_that_returns_at_once_is_followed_by_a_subscription(
    client: JavaScriptClient, model: ScriptedModel
) -> None:
    model.rules([{"gate": "g", "text": "done"}])
    configuration = {"returnImmediately": True}
    task = client.call("sendMessage", **asked("slowly", "chat", configuration=configuration))
    assert task["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    seen = client.stream("resubscribeTask", id=task["id"])
    assert next(seen)["task"]["id"] == task["id"]
    model.open("g")
    *_, artifact, end = seen
    assert artifact["artifactUpdate"]["artifact"]["parts"][0]["text"] == "done"
    assert end["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_stream_brings_the_task_its_artifact_and_its_end(client: JavaScriptClient) -> None:
    first, *events = client.stream("sendMessageStream", **asked("in pieces"))
    assert first["task"]["history"][0]["parts"][0]["text"] == "in pieces"
    assert events[-2]["artifactUpdate"]["artifact"]["parts"][0]["text"] == "in pieces"
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_cancel_ends_a_task(client: JavaScriptClient, model: ScriptedModel) -> None:
    model.rules([{"gate": "never", "text": "too late"}])
    task = client.call("sendMessage", **asked("for long", "chat", configuration={"returnImmediately": True}))
    canceled = client.call("cancelTask", id=task["id"])
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED" and not canceled.get("artifacts")


@pytest.mark.parametrize("client", CURRENT, indirect=True)
def test_it_lists_the_tasks_of_a_context(client: JavaScriptClient) -> None:
    context = wire.fresh("listed")
    task = client.call("sendMessage", **asked("one of them", context=context))
    listed = client.call(
        "listTasks", contextId=context, status="TASK_STATE_COMPLETED", pageSize=5, includeArtifacts=True
    )
    assert [found["id"] for found in listed["tasks"]] == [task["id"]] and listed["totalSize"] == 1
    assert text_of(listed["tasks"][0]) == "one of them"


@pytest.mark.parametrize("call", ["getTask", "cancelTask"])
def test_what_is_not_there_reaches_it_as_the_error_that_the_protocol_has_for_it(
    client: JavaScriptClient, call: str
) -> None:
    with pytest.raises(Refused) as caught:
        client.call(call, id="nope")
    assert caught.value.name == "TaskNotFoundError"


def test_f037_both_clients_read_the_first_tasks_artifacts_after_a_second_turn_and_a_restart(
    shared_model: ScriptedModel, own: Callable[..., Server], run: Run
) -> None:
    """Part by part the same from Python and JavaScript: nothing is read back from the conversation's latest state."""
    server = own()
    message = {**wire.message("", "echo"), "contextId": "one-context", "parts": PARTS}
    with JavaScriptClient(server.url) as before:
        first = before.call("sendMessage", message=message)
        second = before.call("sendMessage", **asked("echo: second", context="one-context"))
    server.restart()
    with JavaScriptClient(server.url) as after:
        told = after.call("getTask", id=first["id"])
    assert told["artifacts"] == first["artifacts"] != second["artifacts"]
    assert [artifact["parts"] for artifact in told["artifacts"]] == [PARTS]
    assert run(python_reads(server, first["id"])) == told["artifacts"]


async def python_reads(server: Server, task_id: str) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
        card = await A2ACardResolver(http, server.url).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http)).create(card)
        return MessageToDict(await client.get_task(types.GetTaskRequest(id=task_id)))["artifacts"]
