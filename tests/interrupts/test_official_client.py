"""The protocol's own client, which knows nothing of us, is asked, answers, and gets what comes of it: A20, A38."""

from collections.abc import Callable
from typing import Any

import pytest
from a2a.types import a2a_pb2 as types
from a2a.utils import errors

from tests.a2a.test_official_client import asked, sent, state_of, talking, text_of
from tests.interrupts import words
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.trial import Trial

Run = Callable[..., Any]
PARKED, AUTH, DONE = types.TASK_STATE_INPUT_REQUIRED, types.TASK_STATE_AUTH_REQUIRED, types.TASK_STATE_COMPLETED


def answering(task: types.Task, text: str) -> types.SendMessageRequest:
    """An answer as such a client makes it: the task's id and context, and the question's mark, copied over."""
    request = asked(text, "asker")
    request.message.task_id, request.message.context_id = task.id, task.context_id
    mark = task.status.message.metadata["question"]
    request.message.metadata.update({"question": mark})
    return request


def test_an_approval_is_asked_and_given(server: Server, model: ScriptedModel, trial: Trial, run: Run) -> None:
    model.rules([words.paying(6), words.ending("Paid.", last_tool="paid 6")])

    async def story() -> tuple[types.Task, types.Task]:
        async with talking(server, streaming=False) as client:
            parked = await sent(client, asked("pay", "asker"))
            return parked, await sent(client, answering(parked, "approve"))

    parked, ended = run(story())
    assert parked.status.state == PARKED and "Do you approve" in parked.status.message.parts[0].text
    assert ended.id == parked.id and ended.status.state == DONE and text_of(ended) == "Paid."
    assert trial.diary() == ["paid 6"]


def test_a_stream_ends_where_the_task_asks_and_the_answer_is_streamed_to_the_end(server: Server, run: Run) -> None:
    async def story() -> tuple[list[types.StreamResponse], list[types.StreamResponse]]:
        async with talking(server) as client:
            first = [event async for event in client.send_message(asked("ask Which?; echo end", "trial"))]
            task = await client.get_task(types.GetTaskRequest(id=first[0].task.id))
            return first, [event async for event in client.send_message(answering(task, "this"))]

    first, then = run(story())
    assert state_of(first[-1]) == PARKED and first[-1].status_update.status.message.parts[0].text == "Which?"
    # A quick one has ended before the stream of its answer begins: then the task has all of it.
    told = [event.artifact_update.artifact for event in then if event.HasField("artifact_update")]
    (artifact,) = told or then[0].task.artifacts
    assert (state_of(then[-1]) if told else then[0].task.status.state) == DONE and artifact.parts[0].text == "this\nend"


def test_a_stream_stays_through_auth_required_and_brings_what_follows(server: Server, run: Run) -> None:
    async def story() -> list[types.StreamResponse]:
        async with talking(server) as client, talking(server, streaming=False, polling=True) as other:
            seen = []
            async for event in client.send_message(asked("auth Sign in.; echo in", "trial")):
                seen.append(event)
                if event.HasField("status_update") and state_of(event) == AUTH:
                    await sent(other, answering(await client.get_task(types.GetTaskRequest(id=seen[0].task.id)), "ok"))
            return seen

    states = [state_of(event) for event in run(story()) if event.HasField("status_update")]
    assert states[-3:] == [AUTH, types.TASK_STATE_WORKING, DONE]


def test_a_second_client_watches_a_parked_task_from_the_question_to_the_end(server: Server, run: Run) -> None:
    async def story() -> tuple[types.Task, list[types.StreamResponse]]:
        async with talking(server, streaming=False) as one, talking(server) as other:
            parked = await sent(one, asked("ask Which?", "trial"))
            seen = other.subscribe(types.SubscribeToTaskRequest(id=parked.id))
            first = await anext(seen)
            await sent(one, answering(parked, "that"))
            return first.task, [event async for event in seen]

    first, events = run(story())
    assert first.status.state == PARKED
    states = [state_of(event) for event in events if event.HasField("status_update")]
    assert states == [types.TASK_STATE_WORKING, DONE]


@pytest.mark.parametrize("wrong", ["an old mark", "an ended task"])
def test_what_answers_nothing_reaches_it_as_the_protocols_error(server: Server, run: Run, wrong: str) -> None:
    async def story() -> None:
        async with talking(server, streaming=False) as client:
            first = await sent(client, asked("ask One?; ask Two?", "trial"))
            second = await sent(client, answering(first, "1"))
            if wrong == "an ended task":
                await sent(client, answering(second, "2"))
            with pytest.raises(
                errors.InvalidParamsError if wrong == "an old mark" else errors.UnsupportedOperationError
            ):
                await sent(client, answering(first, "again"))
            if wrong == "an old mark":
                await client.cancel_task(types.CancelTaskRequest(id=first.id))

    run(story())
