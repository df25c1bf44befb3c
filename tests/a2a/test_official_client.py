"""The protocol's own client, told an address and a binding, gets all that it asks for; its types read every answer.

The binding `0.3` is the same client in that version of the protocol, over JSON-RPC.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.client.client import Client
from a2a.types import a2a_pb2 as types
from a2a.utils import errors
from google.protobuf.json_format import ParseDict
from grpc import aio

from tests.a2a import wire
from tests.support.scripted import ScriptedModel
from tests.support.server import Server

Run = Callable[..., Any]
State = types.TaskState.ValueType


CURRENT = ["JSONRPC", "HTTP+JSON", "GRPC"]


@asynccontextmanager
async def talking(server: Server, **config: Any) -> AsyncIterator[Client]:
    """The official client, made from the card that its own resolver found."""
    async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
        card = await A2ACardResolver(http, server.url).get_agent_card()
        config |= {"httpx_client": http, "grpc_channel_factory": aio.insecure_channel}
        async with ClientFactory(ClientConfig(**config)).create(card) as client:
            yield client


@asynccontextmanager
async def talking_0_3(server: Server, **config: Any) -> AsyncIterator[Client]:
    """The official client, made from what its own reader finds on the card in the fields of 0.3."""
    async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
        told = (await http.get(f"{server.url}/.well-known/agent-card.json")).json()
        del told["supportedInterfaces"]
        card = parse_agent_card(told)
        assert {face.protocol_version for face in card.supported_interfaces} == {"0.3"}
        yield ClientFactory(ClientConfig(httpx_client=http, **config)).create(card)


Talking = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture(name="talking", params=[*CURRENT, "0.3"])
def over_a_binding(request: pytest.FixtureRequest) -> Talking:
    """The official client, held to this binding."""
    if request.param == "0.3":
        return talking_0_3
    return partial(talking, supported_protocol_bindings=[request.param])


def asked(text: str, skill: str = "echo", **configuration: Any) -> types.SendMessageRequest:
    body = {"message": wire.message(text, skill), "configuration": configuration}
    return ParseDict(body, types.SendMessageRequest())


async def sent(client: Client, request: types.SendMessageRequest) -> types.Task:
    """The one answer of a client that does not stream."""
    (answer,) = [event async for event in client.send_message(request)]
    return answer.task


def text_of(task: types.Task) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


def state_of(event: types.StreamResponse) -> State:
    return event.status_update.status.state


def test_the_card_that_its_resolver_finds_is_one_that_it_can_speak_to(shared: Server, run: Run) -> None:
    async def story() -> None:
        async with httpx.AsyncClient(trust_env=False) as http:
            card = await A2ACardResolver(http, shared.url).get_agent_card()
        interfaces = {(face.protocol_binding, face.protocol_version, face.url) for face in card.supported_interfaces}
        rpc, rest = f"{shared.url}/a2a", f"{shared.url}/a2a/rest"
        grpc = ("GRPC", "1.0", f"127.0.0.1:{shared.env['OUTRIDER_GRPC_PORT']}")
        assert interfaces == {("JSONRPC", "1.0", rpc), ("HTTP+JSON", "1.0", rest), grpc, ("JSONRPC", "0.3", rpc)}
        assert {skill.id for skill in card.skills} == {"chat", "echo"}
        assert card.capabilities.streaming and card.capabilities.push_notifications

    run(story())


def test_a_blocking_send_answers_with_the_finished_task(shared: Server, talking: Talking, run: Run) -> None:
    async def story() -> types.Task:
        async with talking(shared, streaming=False) as client:
            return await sent(client, asked("to and fro"))

    task = run(story())
    assert task.status.state == types.TASK_STATE_COMPLETED and text_of(task) == "to and fro"
    assert [part.text for said in task.history for part in said.parts] == ["to and fro"]


def test_a_send_that_returns_at_once_is_followed_with_get(
    shared: Server, talking: Talking, model: ScriptedModel, run: Run
) -> None:
    model.rules([{"gate": "g", "text": "done"}])

    async def story() -> types.Task:
        async with talking(shared, streaming=False, polling=True) as client:
            first = await sent(client, asked("slowly", "chat"))
            assert first.status.state in (types.TASK_STATE_SUBMITTED, types.TASK_STATE_WORKING)
            model.open("g")
            while (task := await client.get_task(types.GetTaskRequest(id=first.id))).status.state in (
                types.TASK_STATE_SUBMITTED,
                types.TASK_STATE_WORKING,
            ):
                pass
            return task

    assert text_of(run(story())) == "done"


def test_a_stream_brings_the_task_its_work_its_artifact_and_its_end(shared: Server, talking: Talking, run: Run) -> None:
    async def story() -> list[types.StreamResponse]:
        async with talking(shared) as client:
            return [event async for event in client.send_message(asked("in pieces"))]

    first, *events = run(story())
    assert first.WhichOneof("payload") == "task"
    kinds = [event.WhichOneof("payload") for event in events]
    assert kinds[-2:] == ["artifact_update", "status_update"] and set(kinds) == {"artifact_update", "status_update"}
    assert state_of(events[-1]) == types.TASK_STATE_COMPLETED
    assert events[-2].artifact_update.artifact.parts[0].text == "in pieces"


def test_cancel_ends_a_task_and_its_stream(shared: Server, talking: Talking, model: ScriptedModel, run: Run) -> None:
    model.rules([{"gate": "never", "text": "too late"}])

    async def story() -> tuple[types.Task, list[State]]:
        async with talking(shared) as client:
            seen = client.send_message(asked("for long", "chat"))
            first = await anext(seen)
            canceled = await client.cancel_task(types.CancelTaskRequest(id=first.task.id))
            return canceled, [state_of(event) async for event in seen]

    task, states = run(story())
    assert task.status.state == types.TASK_STATE_CANCELED and not text_of(task)
    assert states[-1] == types.TASK_STATE_CANCELED


def test_a_second_client_subscribes_to_a_running_task(
    shared: Server, talking: Talking, model: ScriptedModel, run: Run
) -> None:
    model.rules([{"gate": "g", "text": "for both"}])

    async def story() -> tuple[types.Task, list[types.StreamResponse]]:
        async with talking(shared, streaming=False, polling=True) as one, talking(shared) as other:
            task = await sent(one, asked("shared", "chat"))
            seen = other.subscribe(types.SubscribeToTaskRequest(id=task.id))
            first = await anext(seen)
            model.open("g")
            return first.task, [event async for event in seen]

    first, events = run(story())
    assert first.history[0].parts[0].text == "shared"
    (artifact,) = [event.artifact_update.artifact for event in events if event.HasField("artifact_update")]
    assert artifact.parts[0].text == "for both" and state_of(events[-1]) == types.TASK_STATE_COMPLETED


@pytest.mark.parametrize("talking", CURRENT, indirect=True)  # the client does not list tasks over 0.3
def test_it_lists_the_tasks_of_a_context_page_by_page(shared: Server, talking: Talking, run: Run) -> None:
    context = wire.fresh("listed")
    made = [wire.send(shared, wire.message("one of them", contextId=context))["id"] for _ in range(3)]

    async def story() -> list[types.ListTasksResponse]:
        async with talking(shared) as client:
            first = await client.list_tasks(
                types.ListTasksRequest(context_id=context, page_size=2, include_artifacts=True)
            )
            more = types.ListTasksRequest(context_id=context, page_size=2, page_token=first.next_page_token)
            return [first, await client.list_tasks(more)]

    first, last = run(story())
    assert [task.id for page in (first, last) for task in page.tasks] == made[::-1]
    assert (first.total_size, first.page_size, last.next_page_token) == (3, 2, "")
    assert all(text_of(task) == "one of them" for task in first.tasks)
    assert not any(task.artifacts for task in last.tasks)


@pytest.mark.parametrize(
    ("ask", "raised"),
    [
        (lambda client: client.get_task(types.GetTaskRequest(id="nope")), errors.TaskNotFoundError),
        (lambda client: client.cancel_task(types.CancelTaskRequest(id="nope")), errors.TaskNotFoundError),
        (
            lambda client: client.get_task_push_notification_config(
                types.GetTaskPushNotificationConfigRequest(task_id="t", id="p")
            ),
            errors.TaskNotFoundError,
        ),
    ],
    ids=["get", "cancel", "push"],
)
def test_what_is_refused_reaches_it_as_the_error_that_the_protocol_has_for_it(
    shared: Server, talking: Talking, run: Run, ask: Callable[[Client], Any], raised: type[Exception]
) -> None:
    async def story() -> None:
        async with talking(shared) as client:
            with pytest.raises(raised):
                await ask(client)

    run(story())


def test_the_first_tasks_result_stays_after_a_second_turn_and_a_restart(
    impatient: Server, talking: Talking, run: Run
) -> None:
    """F037: nothing is read back from the conversation's latest state."""

    async def told(first: str, *texts: str) -> list[str]:
        async with talking(impatient, streaming=False) as client:
            for text in texts:
                request = asked(text)
                request.message.context_id = "one-context"
                await sent(client, request)
            task = await client.get_task(types.GetTaskRequest(id=first))
            return [text_of(task), *(part.text for said in task.history for part in said.parts)]

    async def begin() -> str:
        async with talking(impatient, streaming=False) as client:
            request = asked("first")
            request.message.context_id = "one-context"
            return (await sent(client, request)).id

    first = run(begin())
    assert run(told(first, "second", "third")) == ["first", "first"]
    impatient.restart()
    assert run(told(first)) == ["first", "first"]
