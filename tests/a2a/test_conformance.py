"""Sentences of the A2A specification that no other test here asks about; docs/conformance.md says which test holds which."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from a2a.types import a2a_pb2 as types

from agent.handlers import Work, make
from background.questions import Parks
from tests.a2a import wire
from tests.a2a.bindings import BINDINGS, JsonRpc, Rest
from tests.a2a.wire import COMPLETED, Json, message
from tests.support.kit.outrider_kit import FILE, scenario
from tests.support.server import Server

Binding = JsonRpc | Rest
UNKNOWN = "https://example.org/extensions/unheard-of/v1"
CAMEL = re.compile(r"[a-z][a-zA-Z]*")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture(params=BINDINGS, ids=lambda binding: binding.name)
def binding(request: pytest.FixtureRequest) -> Binding:
    return request.param


def test_a81_an_extension_that_the_card_does_not_require_is_ignored(shared: Server, binding: Binding) -> None:
    """Section 4.6.3. What the client says of it stays with its message."""
    about = {"extensions": [UNKNOWN], "metadata": {"skill": "echo", UNKNOWN: {"latitude": 37.5}}}
    sent = {"message": message("here", **about)}
    headers = {"A2A-Extensions": f"{UNKNOWN}, https://example.org/another"}
    task = binding.ask(shared, "SendMessage", sent, **headers).task
    assert task["status"]["state"] == COMPLETED
    assert {name: task["history"][0][name] for name in about} == about


def test_a_field_that_the_protocol_does_not_know_is_ignored_wherever_it_stands(
    shared: Server, binding: Binding
) -> None:
    """Section 5.7: for clients of a later version."""
    parts = [{"text": "known", "ofTomorrow": [1]}]
    configuration = {"historyLength": 1, "ofTomorrow": {}}
    sent = {"message": message(parts=parts, ofTomorrow=1), "configuration": configuration, "ofTomorrow": "x"}
    task = binding.ask(shared, "SendMessage", sent).task
    assert task["status"]["state"] == COMPLETED and "ofTomorrow" not in json.dumps(task)
    assert binding.ask(shared, "GetTask", {"id": task["id"], "ofTomorrow": "x"}).result["id"] == task["id"]


def test_null_is_how_a_field_may_be_left_unset(shared: Server, binding: Binding) -> None:
    """Section 5.5: the JSON of protocol buffers."""
    unset = dict.fromkeys(("contextId", "taskId", "extensions", "referenceTaskIds"))
    sent = {"message": message(**unset), "configuration": None, "metadata": None}
    assert binding.ask(shared, "SendMessage", sent).task["status"]["state"] == COMPLETED


def test_names_of_the_proto_file_are_read_as_those_of_json(shared: Server, binding: Binding) -> None:
    """ProtoJSON, which section 5.5 follows: a filter that is left out for its spelling would be a list of everything."""
    context = wire.fresh("spelled")
    said = {"message_id": wire.fresh("m"), "context_id": context, "role": "ROLE_USER", "metadata": {"skill": "echo"}}
    parts = [{"text": "x", "media_type": "text/plain", "metadata": {"task_id": "a client's own"}}]
    sent = {"message": {**said, "parts": parts}, "configuration": {"history_length": 1}}
    task = binding.ask(shared, "SendMessage", sent).task
    assert task["contextId"] == context
    assert task["history"][0]["parts"] == [{"text": "x", "mediaType": "text/plain", "metadata": parts[0]["metadata"]}]
    asked = {"context_id": context, "page_size": 1, "history_length": 0, "include_artifacts": True}
    listed = binding.ask(shared, "ListTasks", asked).result
    assert listed["pageSize"] == 1 and "history" not in listed["tasks"][0] and listed["tasks"][0]["artifacts"]
    twice = binding.ask(shared, "ListTasks", {"context_id": context, "contextId": context})
    assert (twice.reason, twice.message) == ("INVALID_PARAMS", "contextId: must be given once")


@pytest.mark.parametrize(
    ("place", "field"),
    [
        ({"configuration": {"historyLength": 1, "history_length": 1}}, "configuration.historyLength"),
        ({"message": message() | {"message_id": "m"}}, "message.messageId"),
        (
            {"message": message(parts=[{"text": "x", "mediaType": "text/plain", "media_type": "text/plain"}])},
            "message.parts[0].mediaType",
        ),
    ],
    ids=["configuration", "message", "part"],
)
def test_f180_a_field_that_is_given_in_both_spellings_is_named_with_its_way(
    shared: Server, place: Json, field: str
) -> None:
    twice = wire.post(shared, "SendMessage", {"message": message(), **place})
    assert wire.told(twice) == (200, -32602, "INVALID_PARAMS")
    assert wire.error(twice)["message"] == f"{field}: must be given once"


def test_every_answer_has_names_in_camel_case_states_by_name_and_times_in_utc(shared: Server, binding: Binding) -> None:
    """Sections 5.5 and 5.6.1."""
    with binding.stream(shared, "SendStreamingMessage", {"message": message("names")}) as told:
        frames = list(told)
    (task,) = (frame["task"] for frame in frames if "task" in frame)
    got = binding.ask(shared, "GetTask", {"id": task["id"]}).result
    asked = {"contextId": task["contextId"], "includeArtifacts": True}
    fields = list(_fields([*frames, got, binding.ask(shared, "ListTasks", asked).result]))
    assert {name for name, _ in fields} > {"contextId", "nextPageToken", "artifactId", "lastChunk", "messageId"}
    for name, value in fields:
        assert CAMEL.fullmatch(name), name
        if name == "state":
            types.TaskState.Value(value)  # raises for what is no name of one
        if name == "timestamp":
            assert TIME.fullmatch(value)


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Every field of protocol objects, however deep; what a client or profile put in freely is none."""
    for item in value if isinstance(value, list) else []:
        yield from _fields(item)
    for name, inner in value.items() if isinstance(value, dict) else []:
        yield name, inner
        if name not in ("metadata", "data"):
            yield from _fields(inner)


def test_every_message_of_a_history_says_whose_it_is(shared: Server, binding: Binding) -> None:
    """Section 4.1.4, and 3.4.3: a context is told where only the task was known."""
    task = binding.ask(shared, "SendMessage", {"message": message("mine")}).task
    place = {"taskId": task["id"], "contextId": task["contextId"]}
    assert task["history"] and all(place.items() <= said.items() for said in task["history"])


@pytest.mark.parametrize("more", [{}, {"id": None}], ids=["none", "null"])
def test_a_request_without_an_id_is_answered_all_the_same(shared: Server, more: Json) -> None:
    """Section 9.4: every method has an answer, so there are no notifications; JSON-RPC 2.0 has null for an id not known."""
    request = {"jsonrpc": "2.0", "method": "GetTask", "params": {"id": "nope"}, **more}
    answer = shared.http.post("/a2a", json=request, headers=wire.VERSION)
    assert wire.told(answer) == (200, -32001, "TASK_NOT_FOUND") and answer.json()["id"] is None


def test_a_method_with_optional_params_may_come_without_any(shared: Server) -> None:
    """Section 9.4.8 shows such a request."""
    request = {"jsonrpc": "2.0", "id": 6, "method": "ListTasks"}
    assert "tasks" in wire.result(shared.http.post("/a2a", json=request, headers=wire.VERSION))


# --- the conformance kit ----------------------------------------------------------------------------------------------


class Nothing:
    """A turn that has stored nothing yet."""

    stored: Mapping[str, str] = {}

    async def fragment(self, text: str) -> None:
        raise AssertionError("it has no pieces")

    async def keep(self, name: str, content: str) -> None:
        raise AssertionError("it has no steps")


@pytest.mark.parametrize(
    ("message_id", "parts"),
    [
        ("tck-complete-task-1", [{"text": "Hello from TCK"}]),
        ("tck-artifact-file-1", [{"raw": "b3V0cHV0", "filename": "output.txt", "mediaType": "text/plain"}]),
        ("tck-artifact-file-url-1", [{"url": "https://example.com/output.txt", **FILE}]),
        ("tck-artifact-data-1", [{"data": {"key": "value", "count": 42}}]),
    ],
)
def test_what_the_kit_asks_of_an_agent_is_done_by_the_plugin_for_it(message_id: str, parts: list[Json]) -> None:
    work = Work("t", "s", "local", message_id, "hello", [], None, Nothing())
    (artifact,) = asyncio.run(make("kit", scenario).run(work))
    assert artifact["parts"] == parts


def test_the_kit_is_asked_on_until_it_says_something_else() -> None:
    work = Work("t", "s", "local", "tck-input-required-1", "hello", [], None, Nothing())
    with pytest.raises(Parks) as parked:
        asyncio.run(make("kit", scenario).run(work))
    assert (parked.value.question.kind, parked.value.question.text) == ("question", "What more?")


def test_the_page_on_conformance_names_tests_that_are_there() -> None:
    tests = Path(__file__).parents[1]
    named = re.findall(r"`(\w+/test_\w+\.py)::(test_\w+)`", (tests.parent / "docs/conformance.md").read_text())
    assert len(named) > 50
    missing = [(file, name) for file, name in named if f"def {name}(" not in (tests / file).read_text()]
    assert missing == []
