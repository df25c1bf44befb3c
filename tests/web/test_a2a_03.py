"""The words of A2A 0.3 and of 1.0 for the same things: translated as the official SDK does, but JSON to JSON.

What goes over HTTP is in `tests/a2a/test_0_3.py`.
"""

from typing import Any

import pytest
from a2a.compat.v0_3 import conversions, types
from a2a.types import a2a_pb2 as current
from google.protobuf.json_format import ParseDict

from web import a2a_03_answers, a2a_03_params
from web.a2a_03 import TWINS
from web.a2a_requests import SERVED

Json = dict[str, Any]
STATES = [name for name in current.TaskState.DESCRIPTOR.values_by_name if name != "TASK_STATE_UNSPECIFIED"]
PARTS_03 = [
    {"kind": "text", "text": "hi"},
    {"kind": "text", "text": "hi", "metadata": {"k": [1, {"n": None}]}},
    {"kind": "data", "data": {"a": 1.5, "b": [True, None]}, "metadata": {"k": "v"}},
    {"kind": "data", "data": {"value": [1, 2]}, "metadata": {"data_part_compat": True, "k": "v"}},
    {"kind": "data", "data": {"value": 5}},
    {"kind": "file", "file": {"bytes": "aGk=", "name": "f", "mimeType": "text/plain"}},
    {"kind": "file", "file": {"uri": "https://a.example/x"}, "metadata": {"k": 1}},
]
PARTS = [
    {"text": "hi", "metadata": {"k": 1}},
    {"data": {"a": 1}},
    {"data": [1, "x"], "metadata": {"k": 1}},
    {"data": "x"},
    {"raw": "aGk=", "filename": "f", "mediaType": "text/plain"},
    {"url": "https://a.example/x", "metadata": {"k": 1}},
]
CONFIGURATIONS = [
    {},
    {"blocking": True},
    {"blocking": False},
    {"acceptedOutputModes": ["text/plain"], "historyLength": 3},
    {"pushNotificationConfig": {"url": "https://a.example/", "id": "c", "token": "t"}},
    {"pushNotificationConfig": {"url": "u", "authentication": {"schemes": ["Bearer", "x"], "credentials": "s"}}},
]


def test_each_method_of_0_3_has_a_twin_and_each_method_of_1_0_has_one_that_is_its() -> None:
    assert sorted(twin.method for twin in TWINS.values()) == sorted(SERVED)


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_a100_a_send_means_what_the_official_conversion_makes_of_it(configuration: Json) -> None:
    sent: Json = {
        "message": {
            "kind": "message",
            "messageId": "m",
            "contextId": "c",
            "taskId": "t",
            "role": "user",
            "parts": PARTS_03,
            "metadata": {"k": 1},
            "extensions": ["https://e.example"],
            "referenceTaskIds": ["r"],
        },
        "configuration": configuration,
        "metadata": {"of": "the request"},
    }
    params = types.MessageSendParams.model_validate(sent)
    official = conversions.to_core_send_message_request(types.SendMessageRequest(id=1, params=params))
    assert ParseDict(a2a_03_params.send(sent), current.SendMessageRequest()) == official


def message(role: str = "ROLE_AGENT") -> Json:
    return {"messageId": "m", "taskId": "t", "contextId": "c", "role": role, "parts": PARTS, "metadata": {"k": 1}}


def task(state: str) -> Json:
    """A task that has all that a task can have."""
    return {
        "id": "t",
        "contextId": "c",
        "status": {"state": state, "timestamp": "2026-11-30T12:00:00.123Z", "message": message()},
        "history": [message("ROLE_USER"), message()],
        "artifacts": [{"artifactId": "a", "name": "n", "description": "d", "parts": PARTS, "metadata": {"k": 1}}],
        "metadata": {"reason": "because"},
    }


def written(model: Any) -> Json:
    """Values as they are; only what the model's types leave unset is not there."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


@pytest.mark.parametrize("state", STATES)
def test_a100_a_task_is_told_as_the_official_conversion_tells_it(state: str) -> None:
    official = conversions.to_compat_task(ParseDict(task(state), current.Task()))
    assert a2a_03_answers.task(task(state)) == written(official)


@pytest.mark.parametrize("state", STATES)
def test_a100_a_status_is_told_as_the_official_conversion_tells_it_and_final_where_a_stream_ends(state: str) -> None:
    update = {"taskId": "t", "contextId": "c", "status": task(state)["status"], "metadata": {"k": 1}}
    told = a2a_03_answers.event({"statusUpdate": update})
    core = ParseDict(update, current.TaskStatusUpdateEvent())
    official = written(conversions.to_compat_task_status_update_event(core))
    # The conversion knows the ends of tasks only; a stream also ends where its task asks.
    assert told == official | {"final": official["final"] or state == "TASK_STATE_INPUT_REQUIRED"}


@pytest.mark.parametrize("how", [{}, {"append": True, "lastChunk": False}, {"lastChunk": True}], ids=str)
def test_a100_an_artifact_is_told_as_the_official_conversion_tells_it(how: Json) -> None:
    update = {"taskId": "t", "contextId": "c", "artifact": task(STATES[0])["artifacts"][0], **how}
    core = ParseDict(update, current.TaskArtifactUpdateEvent())
    official = written(conversions.to_compat_task_artifact_update_event(core))
    assert {"append": False, "lastChunk": False} | a2a_03_answers.event({"artifactUpdate": update}) == official


def test_a86_values_go_over_as_they_are_and_are_not_copied() -> None:
    data = {"i": 1, "big": 9007199254740993, "f": 1.0, "n": None}
    sent = {"message": {"role": "user", "parts": [{"kind": "data", "data": data}]}}
    taken = a2a_03_params.send(sent)["message"]["parts"][0]
    assert taken["data"] is data
    whole = task("TASK_STATE_COMPLETED") | {"artifacts": [{"artifactId": "a", "parts": [taken]}]}
    assert a2a_03_answers.task(whole)["artifacts"][0]["parts"][0]["data"] is data
    assert a2a_03_params.send({"message": {"role": "user"}})["message"]["parts"] is None


@pytest.mark.parametrize(
    ("raw", "bytes_"), [("aGk=", "aGk="), ("aGk", "aGk="), ("-_-_", "+/+/"), ("-_-_Pw", "+/+/Pw=="), ("", "")]
)
def test_bytes_are_told_in_the_plain_alphabet(raw: str, bytes_: str) -> None:
    whole = task("TASK_STATE_COMPLETED") | {"artifacts": [{"artifactId": "a", "parts": [{"raw": raw}]}]}
    assert a2a_03_answers.task(whole)["artifacts"][0]["parts"] == [{"kind": "file", "file": {"bytes": bytes_}}]


def test_what_0_3_has_no_word_for_is_left_out() -> None:
    part = {"text": "# hi", "mediaType": "text/markdown", "filename": "a.md"}
    whole = task("TASK_STATE_COMPLETED") | {"artifacts": [{"artifactId": "a", "parts": [part]}]}
    assert a2a_03_answers.task(whole)["artifacts"][0]["parts"] == [{"kind": "text", "text": "# hi"}]
