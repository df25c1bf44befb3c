"""What a client of 0.3 sends and gets, byte for byte: F080, F081, A99 to A104. No header names the version."""

import json
from typing import Any

import httpx
import pytest

from tests.a2a import former, wire
from tests.a2a.over_grpc import Grpc
from tests.a2a.wire import Json
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of

PUBLIC = "https://93.184.216.34/"


def message(text: str = "hello", skill: str | None = "echo", **fields: Any) -> Json:
    """A message in the words of 0.3, by default one that the echo profile answers."""
    return former.message(wire.message(text, skill)) | fields


def post(server: Server, method: str, params: Any, **headers: str) -> httpx.Response:
    return former.post(server, method, params, **headers)


def result(server: Server, method: str, params: Json) -> Any:
    """The result of a call that must succeed."""
    answer = post(server, method, params).json()
    assert "result" in answer, answer
    return answer["result"]


def field(answer: httpx.Response) -> str:
    """The field by which something is refused, which stands at the head of the sentence too."""
    error = wire.error(answer)
    ((found,),) = [
        [violation["field"] for violation in detail["fieldViolations"]]
        for detail in error["data"]
        if detail["@type"].endswith("BadRequest")
    ]
    assert error["code"] == -32602 and error["message"].startswith(f"{found}: ")
    return found


# --- the shape of things -----------------------------------------------------------------------------------------------


def test_a100_a_message_as_0_3_writes_it_is_answered_with_a_task_as_0_3_writes_it(shared: Server) -> None:
    parts = [
        {"kind": "text", "text": "echo X", "metadata": {"k": 1}},
        {"kind": "data", "data": {"n": [1, 2.5, None], "big": 9007199254740993}, "metadata": {"d": {}}},
        {"kind": "file", "file": {"bytes": "aGk=", "name": "hi.txt", "mimeType": "text/plain"}},
        {"kind": "file", "file": {"uri": "https://a.example/x"}, "metadata": {"f": True}},
    ]
    answer = post(shared, "message/send", {"message": message(messageId="a100", parts=parts)})
    task = answer.json()["result"]
    former.known(task, former.official.Task)
    assert task["kind"] == "task" and task["status"]["state"] == "completed"
    (artifact,), (said,) = task["artifacts"], task["history"]
    assert artifact["parts"] == said["parts"] == parts
    assert (said["kind"], said["role"], said["messageId"]) == ("message", "user", "a100")
    assert '"big":9007199254740993' in answer.text and '"n":[1,2.5,null]' in answer.text
    for new in ("TASK_STATE", "ROLE_", '"raw"', '"mediaType"', '"filename"'):
        assert new not in answer.text


def test_a100_the_last_status_of_a_stream_is_final_and_no_other(shared: Server) -> None:
    with shared.http.stream(
        "POST",
        "/a2a",
        json={"jsonrpc": "2.0", "id": "s", "method": "message/stream", "params": {"message": message()}},
    ) as response:
        frames = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: ")]
    assert all(frame["jsonrpc"] == "2.0" and frame["id"] == "s" for frame in frames)
    first, *rest = [frame["result"] for frame in frames]
    assert first["kind"] == "task" and {frame["kind"] for frame in rest} == {"status-update", "artifact-update"}
    finals = [frame["final"] for frame in rest if frame["kind"] == "status-update"]
    assert finals == [False] * (len(finals) - 1) + [True]
    assert rest[-1]["status"]["state"] == "completed"


@pytest.mark.parametrize("value", [[1, 2], "text", 5, None, {"value": 5}], ids=str)
def test_data_that_is_no_object_is_wrapped_in_one_and_comes_back_as_it_was(shared: Server, value: Any) -> None:
    """As the official clients do it: 0.3 has objects only."""
    current = wire.send(shared, wire.message(parts=[{"data": value}]))
    told = result(shared, "tasks/get", {"id": current["id"]})["artifacts"][0]["parts"]
    wrapped = {"data": {"value": value}, "metadata": {"data_part_compat": True}}
    assert told == [{"kind": "data", **(wrapped if not isinstance(value, dict) else {"data": value})}]
    again = result(shared, "message/send", {"message": message(parts=told)})
    assert wire.get(shared, again["id"])["artifacts"][0]["parts"] == [{"data": value}]


def test_bytes_go_out_in_the_alphabet_that_every_client_reads(shared: Server) -> None:
    current = wire.send(shared, wire.message(parts=[{"raw": "-_-_Pw", "mediaType": "text/plain"}]))
    (part,) = result(shared, "tasks/get", {"id": current["id"]})["artifacts"][0]["parts"]
    assert part == {"kind": "file", "file": {"bytes": "+/+/Pw==", "mimeType": "text/plain"}}


# --- errors ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ended(shared: Server) -> str:
    """The id of a task that has ended."""
    return wire.send(shared, wire.message())["id"]


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tasks/get", {"id": "nope"}, -32001),
        ("tasks/cancel", {"id": "<ended>"}, -32002),
        ("message/send", {"message": message(taskId="<ended>")}, -32004),
        ("message/stream", {"message": message(taskId="<ended>")}, -32004),
        ("tasks/resubscribe", {"id": "<ended>"}, -32004),
        ("tasks/resubscribe", {"id": "nope"}, -32001),
        ("agent/getAuthenticatedExtendedCard", {}, -32007),  # A96: as each version has it; in 1.0 it is -32004
        ("agent/getAuthenticatedExtendedCard", {"tenant": "acme"}, -32602),
        (
            "message/send",
            {"message": message(parts=[{"kind": "file", "file": {"bytes": "dGNr", "mimeType": "application/x-un"}}])},
            -32005,
        ),
        ("tasks/nothing", {}, -32601),
        ("GetTask", {"id": "nope"}, -32009),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a99_errors_have_the_codes_that_0_3_has_for_them(
    shared: Server, ended: str, method: str, params: Json, code: int
) -> None:
    asked = json.loads(json.dumps(params).replace("<ended>", ended))
    with wire.nothing_stored(shared):
        answer = post(shared, method, asked)
    assert answer.status_code == 200 and wire.error(answer)["code"] == code
    assert answer.json()["id"] == method


ONE = "message.parts[0]"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"kind": "task"}, "message.kind"),
        ({"role": "ROLE_USER"}, "message.role"),
        ({"role": "agent"}, "message.role"),
        ({"messageId": None}, "message.messageId"),
        ({"parts": None}, "message.parts"),
        ({"parts": []}, "message.parts"),
        ({"parts": [5]}, ONE),
        ({"parts": [{"text": "x"}]}, f"{ONE}.kind"),
        ({"parts": [{"type": "text", "text": "x"}]}, f"{ONE}.kind"),
        ({"parts": [{"kind": ["text"], "text": "x"}]}, f"{ONE}.kind"),
        ({"parts": [{"kind": "text", "text": 5}]}, f"{ONE}.text"),
        ({"parts": [{"kind": "text", "text": " "}]}, f"{ONE}.text"),
        ({"parts": [{"kind": "text", "data": {}}]}, f"{ONE}.text"),
        ({"parts": [{"kind": "data", "data": [1]}]}, f"{ONE}.data"),
        ({"parts": [{"kind": "data", "data": {}, "metadata": []}]}, f"{ONE}.metadata"),
        ({"parts": [{"kind": "file"}]}, f"{ONE}.file"),
        ({"parts": [{"kind": "file", "file": {}}]}, f"{ONE}.file"),
        ({"parts": [{"kind": "file", "file": {"bytes": "aGk=", "uri": "https://a"}}]}, f"{ONE}.file"),
        ({"parts": [{"kind": "file", "file": {"raw": "aGk="}}]}, f"{ONE}.file"),
        ({"parts": [{"kind": "file", "file": {"bytes": "%%%"}}]}, f"{ONE}.file.bytes"),
        ({"parts": [{"kind": "file", "file": {"bytes": 5}}]}, f"{ONE}.file.bytes"),
        ({"parts": [{"kind": "file", "file": {"uri": "x" * 3000}}]}, f"{ONE}.file.uri"),
        ({"parts": [{"kind": "file", "file": {"bytes": "aGk=", "name": 5}}]}, f"{ONE}.file.name"),
        ({"parts": [{"kind": "file", "file": {"bytes": "aGk=", "mimeType": []}}]}, f"{ONE}.file.mimeType"),
        ({"contextId": "background:x"}, "message.contextId"),
        ({"metadata": {"origin": "background"}}, "message.metadata.origin"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_bad_field_of_a_message_is_named_as_its_client_wrote_it(shared: Server, change: Json, named: str) -> None:
    with wire.nothing_stored(shared):
        answer = post(shared, "message/send", {"message": message() | change})
    assert field(answer) == named


HOOK = "configuration.pushNotificationConfig"


@pytest.mark.parametrize(
    ("configuration", "named"),
    [
        ("x", "configuration"),
        ({"blocking": "yes"}, "configuration.blocking"),
        ({"historyLength": -1}, "configuration.historyLength"),
        ({"acceptedOutputModes": "text"}, "configuration.acceptedOutputModes"),
        ({"pushNotificationConfig": "x"}, HOOK),
        ({"pushNotificationConfig": {}}, f"{HOOK}.url"),
        ({"pushNotificationConfig": {"url": "http://127.0.0.1/"}}, f"{HOOK}.url"),
        ({"pushNotificationConfig": {"url": PUBLIC, "token": "a\nb"}}, f"{HOOK}.token"),
        ({"pushNotificationConfig": {"url": PUBLIC, "authentication": {}}}, f"{HOOK}.authentication.schemes"),
        (
            {"pushNotificationConfig": {"url": PUBLIC, "authentication": {"schemes": ["a b"]}}},
            f"{HOOK}.authentication.schemes[0]",
        ),
        (
            {"pushNotificationConfig": {"url": PUBLIC, "authentication": {"schemes": ["Bearer"], "credentials": "é"}}},
            f"{HOOK}.authentication.credentials",
        ),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_bad_field_of_the_configuration_is_named_as_its_client_wrote_it(
    shared: Server, configuration: Any, named: str
) -> None:
    with wire.nothing_stored(shared):
        answer = post(shared, "message/send", {"message": message(), "configuration": configuration})
    assert field(answer) == named


@pytest.mark.parametrize(
    ("method", "params", "named"),
    [
        ("message/send", [], "params"),
        ("message/send", {}, "message"),
        ("message/send", {"message": message(), "tenant": "acme"}, "tenant"),
        ("tasks/get", {}, "id"),
        ("tasks/get", {"name": "tasks/t"}, "id"),
        ("tasks/get", {"id": "t", "historyLength": "2"}, "historyLength"),
        ("tasks/cancel", {"id": "t", "metadata": "x"}, "metadata"),
        ("tasks/resubscribe", {"id": 5}, "id"),
        ("tasks/list", {"pageSize": 0}, "pageSize"),
        ("tasks/list", {"pageToken": "x"}, "pageToken"),
        ("tasks/list", {"status": "TASK_STATE_COMPLETED"}, "status"),
        ("tasks/list", {"status": "unknown"}, "status"),
        ("tasks/list", {"status": 3}, "status"),
        ("tasks/pushNotificationConfig/set", {"taskId": "t"}, "pushNotificationConfig"),
        ("tasks/pushNotificationConfig/set", {"pushNotificationConfig": {"url": PUBLIC}}, "taskId"),
        (
            "tasks/pushNotificationConfig/set",
            {"taskId": "t", "pushNotificationConfig": {}},
            "pushNotificationConfig.url",
        ),
        (
            "tasks/pushNotificationConfig/set",
            {"taskId": "t", "pushNotificationConfig": {"url": PUBLIC, "id": "a b"}},
            "pushNotificationConfig.id",
        ),
        (
            "tasks/pushNotificationConfig/set",
            {"taskId": "t", "pushNotificationConfig": {"url": PUBLIC, "authentication": {"schemes": [5]}}},
            "pushNotificationConfig.authentication.schemes[0]",
        ),
        ("tasks/pushNotificationConfig/get", {"taskId": "t"}, "id"),
        ("tasks/pushNotificationConfig/list", {}, "id"),
        ("tasks/pushNotificationConfig/delete", {"id": "t"}, "pushNotificationConfigId"),
        ("tasks/pushNotificationConfig/delete", {"id": 5, "pushNotificationConfigId": "c"}, "id"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a104_a_bad_field_of_any_method_is_named_as_its_client_wrote_it(
    shared: Server, method: str, params: Any, named: str
) -> None:
    answer = post(shared, method, params)
    assert field(answer) == named
    assert "TASK_STATE" not in answer.text


# --- sending -----------------------------------------------------------------------------------------------------------


def test_a102_blocking_is_what_a_send_does_unless_it_says_that_it_is_not(
    impatient: Server, model: ScriptedModel
) -> None:
    model.rules([{"gate": "g", "text": "later"}])
    waiting = {"message": message(skill=None), "configuration": {"blocking": True}}
    answer = post(impatient, "message/send", waiting)  # and one that does not say: test_bindings, A21
    assert (answer.status_code, wire.error(answer)["code"]) == (504, -32603)
    at_once = {"message": message(skill=None), "configuration": {"blocking": False}}
    task = result(impatient, "message/send", at_once)
    assert task["status"]["state"] in ("submitted", "working") and "artifacts" not in task
    model.open("g")
    assert answer_of(impatient.ended(task["id"])) == "later"


def test_a104_what_1_0_calls_a_field_means_nothing_here(shared: Server) -> None:
    configuration = {"returnImmediately": True, "taskPushNotificationConfig": {"url": "http://127.0.0.1/"}}
    task = result(shared, "message/send", {"message": message(), "configuration": configuration})
    assert task["status"]["state"] == "completed"
    assert result(shared, "tasks/pushNotificationConfig/list", {"id": task["id"]}) == []


@pytest.mark.parametrize("left_out", ["kind", "metadata"])
def test_a_message_may_leave_out_what_the_examples_of_the_specification_do(shared: Server, left_out: str) -> None:
    sent = message("as in the book", skill="echo")
    del sent[left_out]
    assert result(shared, "message/send", {"message": sent, "configuration": {"blocking": False}})["kind"] == "task"


@pytest.mark.parametrize(("length", "shown"), [(None, 1), (0, None), (1, 1), (99, 1)])
def test_a102_a_history_is_as_long_as_was_asked_and_0_leaves_it_out(
    shared: Server, length: int | None, shown: int | None
) -> None:
    configuration = {} if length is None else {"historyLength": length}
    task = result(shared, "message/send", {"message": message(), "configuration": configuration})
    read = result(shared, "tasks/get", {"id": task["id"], **configuration})
    assert read == task and (len(task["history"]) if "history" in task else None) == shown


def test_a24_a_message_that_came_by_1_0_comes_again_by_0_3_and_is_the_same_task(shared: Server) -> None:
    parts = [{"text": "once"}, {"data": {"n": 1}}, {"raw": "aGk=", "filename": "f", "mediaType": "text/plain"}]
    sent = wire.message(parts=parts)
    first = wire.send(shared, sent)
    again = former.message(sent)
    assert former.task(result(shared, "message/send", {"message": again})) == first
    other = post(shared, "message/send", {"message": again | {"parts": again["parts"][:1]}})
    assert wire.told(other) == (200, -32602, "MESSAGE_ID_REUSED")


# --- what was not in 0.3 -----------------------------------------------------------------------------------------------


def test_f080_a_list_has_the_same_rows_and_pages_on_both_wires_and_each_spells_its_states(shared: Server) -> None:
    context = wire.fresh("both-wires")
    for _ in range(7):
        wire.send(shared, wire.message(contextId=context))
    token, rows = "", []
    while token or not rows:
        asked = {"contextId": context, "pageSize": 3, "pageToken": token}
        here = result(shared, "tasks/list", asked | {"status": "completed"})
        there = wire.result(wire.post(shared, "ListTasks", asked | {"status": "TASK_STATE_COMPLETED"}))
        assert [task["status"]["state"] for task in here["tasks"]] == ["completed"] * len(here["tasks"])
        assert [former.task(task) for task in here["tasks"]] == there["tasks"]
        # A token is sealed anew each time; either leads to the same page.
        assert [here[name] for name in ("pageSize", "totalSize")] == [there[name] for name in ("pageSize", "totalSize")]
        assert bool(here["nextPageToken"]) == bool(there["nextPageToken"])
        rows += [task["id"] for task in here["tasks"]]
        token = here["nextPageToken"] if len(rows) == 3 else there["nextPageToken"]
    assert len(rows) == len(set(rows)) == 7
    assert result(shared, "tasks/list", {"contextId": context, "status": "input-required"})["tasks"] == []


def test_a_config_that_names_no_id_is_read_without_one(shared: Server, ended: str) -> None:
    config = {"url": PUBLIC, "token": "hush", "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "s"}}
    made = result(shared, "tasks/pushNotificationConfig/set", {"taskId": ended, "pushNotificationConfig": config})
    told = {"id": ended, "url": PUBLIC, "authentication": {"schemes": ["Bearer"]}}
    assert made == {"taskId": ended, "pushNotificationConfig": told}
    assert result(shared, "tasks/pushNotificationConfig/get", {"id": ended}) == made
    assert result(shared, "tasks/pushNotificationConfig/list", {"id": ended}) == [made]
    gone = {"id": ended, "pushNotificationConfigId": ended}
    assert result(shared, "tasks/pushNotificationConfig/delete", gone) is None
    answer = post(shared, "tasks/pushNotificationConfig/get", {"id": ended})
    assert wire.told(answer) == (200, -32001, "TASK_NOT_FOUND")


def test_a97_each_interface_of_the_card_answers_in_the_version_that_it_names(shared: Server) -> None:
    card = shared.get("/.well-known/agent-card.json")
    wire.send(shared, wire.message("listed by each"))
    for face in card["supportedInterfaces"]:
        version = {"A2A-Version": face["protocolVersion"]}
        if face["protocolBinding"] == "JSONRPC":
            method = {"1.0": "ListTasks", "0.3": "tasks/list"}[face["protocolVersion"]]
            answer = httpx.post(
                face["url"], json={"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}, headers=version
            )
            tasks = answer.json()["result"]["tasks"]
        elif face["protocolBinding"] == "GRPC":
            assert face["url"] == f"127.0.0.1:{shared.env['OUTRIDER_GRPC_PORT']}"
            tasks = Grpc().ask(shared, "ListTasks", {}, **version).result["tasks"]
        else:
            tasks = httpx.get(f"{face['url']}/tasks", headers=version).json()["tasks"]
        assert tasks
    assert card["protocolVersion"] == "0.3" and post(shared, "tasks/get", {"id": "nope"}).is_success


def test_f060_a_stream_that_its_client_closes_gives_its_place_back(tight: Server, model: ScriptedModel) -> None:
    """There is one for each task."""
    model.rules([{"gate": "g", "text": "later"}])
    task = wire.start(tight, wire.said())
    for _ in range(2):
        with former.Former().stream(tight, "SubscribeToTask", {"id": task["id"]}) as told:
            assert next(told)["task"]["id"] == task["id"]
        tight.wait(lambda: "outrider_streams 0\n" in tight.http.get("/metrics").text)
    model.open("g")
    assert answer_of(tight.ended(task["id"])) == "later"
