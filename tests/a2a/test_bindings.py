"""Each question asked on each binding: the same tasks, states, orders and reasons, and only the wire differs."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import permutations
from typing import Any, NamedTuple

import pytest
from a2a.types import a2a_pb2 as types

from tests.a2a import wire
from tests.a2a.bindings import BINDINGS, Answer, JsonRpc, Rest
from tests.a2a.conftest import asking
from tests.a2a.former import Former
from tests.a2a.over_grpc import Grpc, Unsayable, served
from tests.a2a.wire import CANCELED, COMPLETED, FAILED, Json, message, said
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of

Binding = JsonRpc | Rest | Former | Grpc
FORMER, GRPC = Former(), Grpc()
ALL: tuple[Binding, ...] = (*BINDINGS, FORMER, GRPC)
ENDED, FAILURE, CALLED_OFF, CONTEXT = "<ended>", "<failed>", "<canceled>", "<context>"
PUBLIC = "https://93.184.216.34/"


@pytest.fixture(params=ALL, ids=lambda binding: binding.name)
def binding(request: pytest.FixtureRequest) -> Binding:
    return request.param


class Scene(NamedTuple):
    """A server with tasks in every end state; `names` are what questions call them by."""

    server: Server
    names: dict[str, str]

    def both(self, method: str, params: Json) -> Answer:
        """The answer of both bindings, after a look that it is the same; 0.3 has other names, and the same answer.

        So has gRPC, of what can be asked over it.
        """
        told = json.loads(self.named(json.dumps(params)))
        one, other = (binding.ask(self.server, method, told).said for binding in BINDINGS)
        assert one == other
        former = FORMER.ask(self.server, method, told)
        assert (former.result, former.reason) == (one.result, one.reason)
        with suppress(Unsayable):
            assert GRPC.ask(self.server, method, told).said == one
        return one

    def named(self, text: str) -> str:
        for name, value in self.names.items():
            text = text.replace(name, value)
        return text


@pytest.fixture(scope="module")
def scene(shared: Server, shared_model: ScriptedModel) -> Scene:
    context = wire.fresh("scene")
    shared_model.rules([{"last_user": "^fail", "status": 400}, {"last_user": "^wait", "gate": "never"}, {"text": "x"}])
    ended = wire.send(shared, message(parts=[{"text": "hi"}, {"data": {"n": None}}], contextId=context))
    failed = wire.send(shared, said("fail", contextId=context))
    canceled = wire.cancel(shared, wire.start(shared, said("wait", contextId=context))["id"])
    states = [task["status"]["state"] for task in (ended, failed, canceled)]
    assert states == [COMPLETED, FAILED, CANCELED]
    shared_model.rules([])
    names = {ENDED: ended["id"], FAILURE: failed["id"], CALLED_OFF: canceled["id"], CONTEXT: context}
    return Scene(shared, names)


# --- questions that have one answer -----------------------------------------------------------------------------------

INVALID, NOT_FOUND = "INVALID_PARAMS", "TASK_NOT_FOUND"
LISTED = {"contextId": CONTEXT}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("GetTask", {"id": ENDED}),
        ("GetTask", {"id": FAILURE}),
        ("GetTask", {"id": CALLED_OFF}),
        *[("GetTask", {"id": ENDED, "historyLength": length}) for length in (0, 1, 2, 999999)],
        ("ListTasks", LISTED),
        *[("ListTasks", {**LISTED, "historyLength": length}) for length in (0, 2)],
        *[("ListTasks", {**LISTED, "includeArtifacts": wanted}) for wanted in (True, False)],
        *[("ListTasks", {**LISTED, "status": state}) for state in (COMPLETED, CANCELED, "TASK_STATE_UNSPECIFIED", "")],
        ("ListTasks", {**LISTED, "statusTimestampAfter": "2026-01-01T00:00:00.5+01:00", "pageSize": 100}),
        ("ListTasks", {**LISTED, "statusTimestampAfter": "2999-01-01T00:00:00Z"}),
        ("ListTasks", {"contextId": "one-that-nobody-has"}),
        ("ListTaskPushNotificationConfigs", {"taskId": ENDED}),
    ],
    ids=lambda value: str(value)[:50],
)
def test_f065_f067_what_is_read_over_one_binding_is_what_is_read_over_the_other(
    scene: Scene, method: str, params: Json
) -> None:
    assert scene.both(method, params).result


@pytest.mark.parametrize(
    ("method", "params", "reason"),
    [
        ("GetTask", {"id": "nope"}, NOT_FOUND),
        ("GetTask", {"id": "é ü"}, NOT_FOUND),
        *[("GetTask", {"id": ENDED, "historyLength": wrong}, INVALID) for wrong in (-1, 2**31, "abc", "1.5", "", "+1")],
        ("GetTask", {"id": ENDED, "tenant": "acme"}, INVALID),
        *[("ListTasks", {"pageSize": wrong}, INVALID) for wrong in (0, -1, 101, "abc", 2**31, 10**30, "")],
        *[("ListTasks", {"status": wrong}, INVALID) for wrong in ("completed", "TASK_STATE_BOGUS", 99)],
        ("ListTasks", {"historyLength": -1}, INVALID),
        ("ListTasks", {"includeArtifacts": "yes"}, INVALID),
        ("ListTasks", {"statusTimestampAfter": "yesterday"}, INVALID),
        ("ListTasks", {"pageToken": "made-up"}, INVALID),
        ("ListTasks", {"tenant": "acme"}, INVALID),
        ("CancelTask", {"id": "nope"}, NOT_FOUND),
        *[("CancelTask", {"id": task}, "TASK_NOT_CANCELABLE") for task in (ENDED, FAILURE, CALLED_OFF)],
        ("CancelTask", {"id": ENDED, "metadata": {"reason": "x"}}, "TASK_NOT_CANCELABLE"),
        ("CancelTask", {"id": ENDED, "metadata": "x"}, INVALID),
        ("CancelTask", {"id": ENDED, "tenant": "acme"}, INVALID),
        ("SubscribeToTask", {"id": "nope"}, NOT_FOUND),
        *[("SubscribeToTask", {"id": task}, "UNSUPPORTED_OPERATION") for task in (ENDED, FAILURE, CALLED_OFF)],
        ("GetExtendedAgentCard", {"tenant": "acme"}, INVALID),
        ("CreateTaskPushNotificationConfig", {"taskId": "nope", "url": PUBLIC}, NOT_FOUND),
        ("CreateTaskPushNotificationConfig", {"taskId": ENDED, "url": "http://127.0.0.1:9/"}, INVALID),
        ("CreateTaskPushNotificationConfig", {"taskId": ENDED}, INVALID),
        ("GetTaskPushNotificationConfig", {"taskId": ENDED, "id": "nope"}, NOT_FOUND),
        ("ListTaskPushNotificationConfigs", {"taskId": "nope"}, NOT_FOUND),
        ("DeleteTaskPushNotificationConfig", {"taskId": "nope", "id": "nope"}, NOT_FOUND),
    ],
    ids=lambda value: str(value)[:50],
)
def test_f064_a51_a60_a64_a79_what_is_refused_over_one_binding_is_refused_over_the_other_by_the_same_reason(
    scene: Scene, method: str, params: Json, reason: str
) -> None:
    assert scene.both(method, params).reason == reason


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({}, INVALID),
        ({"message": "x"}, INVALID),
        ({"message": message(" ")}, INVALID),
        ({"message": message(parts=[{"text": "x", "data": 1}])}, INVALID),
        ({"message": message(role="ROLE_AGENT")}, INVALID),
        ({"message": message(skill="nobody-has-it")}, INVALID),
        ({"message": message(contextId="background:bg-0123456789ab")}, INVALID),
        ({"message": message(), "tenant": "acme"}, INVALID),
        ({"message": message(), "configuration": {"historyLength": -1}}, INVALID),
        ({"message": message(), "configuration": {"returnImmediately": "yes"}}, INVALID),
        ({"message": message(parts=[{"raw": "dGNr", "mediaType": "application/x-un"}])}, "CONTENT_TYPE_NOT_SUPPORTED"),
        ({"message": message(taskId="nope")}, NOT_FOUND),
        *[({"message": message(taskId=task)}, "UNSUPPORTED_OPERATION") for task in (ENDED, FAILURE, CALLED_OFF)],
    ],
    ids=lambda value: str(value)[:60],
)
def test_a26_a28_a31_a_send_that_is_refused_answers_plain_json_and_stores_nothing(
    scene: Scene, method: str, params: Json, reason: str
) -> None:
    with wire.nothing_stored(scene.server):
        assert scene.both(method, params).reason == reason


def test_a26_a_task_id_that_was_made_up_is_still_nobodys(scene: Scene) -> None:
    assert scene.both("SendMessage", {"message": message(taskId="nope")}).reason == NOT_FOUND
    assert scene.both("GetTask", {"id": "nope"}).reason == NOT_FOUND


@pytest.mark.parametrize("page", [{"pageSize": -1}, {"pageSize": 101}, {"pageToken": "c1"}], ids=str)
def test_a60_a_page_of_configs_that_cannot_be_is_refused(scene: Scene, page: Json) -> None:
    """Over 0.3 there are no pages of them."""
    for binding in BINDINGS:
        asked = {"taskId": scene.names[ENDED], **page}
        assert binding.ask(scene.server, "ListTaskPushNotificationConfigs", asked).reason == INVALID


def test_a94_a96_an_extended_card_is_not_offered(shared: Server) -> None:
    """0.3 has an error of its own for one that is not there."""
    for binding in ALL:
        told = "EXTENDED_AGENT_CARD_NOT_CONFIGURED" if binding is FORMER else "UNSUPPORTED_OPERATION"
        assert binding.ask(shared, "GetExtendedAgentCard", {}).reason == told


def test_a80_two_versions_that_differ_are_none(shared: Server) -> None:
    with wire.nothing_stored(shared):
        sent = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message()}}
        headers = [("A2A-Version", "1.0"), ("A2A-Version", "2.0")]
        assert wire.told(shared.http.post("/a2a", json=sent, headers=headers))[2] == "VERSION_NOT_SUPPORTED"
        rest = shared.http.get("/a2a/rest/tasks", headers=headers)
        assert rest.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"


# --- lists ------------------------------------------------------------------------------------------------------------


def test_f069_f073_pages_go_on_over_either_binding(shared: Server) -> None:
    """The cursor is the same: each page is asked for over another binding than the one before."""
    context = wire.fresh("pages")
    made = [wire.send(shared, message(contextId=context))["id"] for _ in range(7)]
    for first, second in permutations(ALL, 2):
        found, token = [], ""
        for binding in (first, second, first):
            page = binding.ask(shared, "ListTasks", {"contextId": context, "pageSize": 3, "pageToken": token}).result
            wire.strictly(page, types.ListTasksResponse())
            assert (page["pageSize"], page["totalSize"]) == (3, 7)
            found += [task["id"] for task in page["tasks"]]
            token = page["nextPageToken"]
        assert (found, token) == (made[::-1], "")


# --- sends ------------------------------------------------------------------------------------------------------------


def test_a_blocking_send_answers_with_the_task_that_get_shows(shared: Server, binding: Binding) -> None:
    task = binding.ask(shared, "SendMessage", {"message": message("to and fro")}).task
    assert task["status"]["state"] == COMPLETED and answer_of(task) == "to and fro"
    for other in ALL:
        assert other.ask(shared, "GetTask", {"id": task["id"]}).result == task


@pytest.mark.parametrize(("length", "shown"), [(None, 1), (0, None), (1, 1), (99, 1)])
def test_a53_a_send_shows_as_much_of_the_history_as_is_asked_for(
    shared: Server, binding: Binding, length: int | None, shown: int | None
) -> None:
    configuration = {} if length is None else {"historyLength": length}
    task = binding.ask(shared, "SendMessage", {"message": message(), "configuration": configuration}).task
    assert (len(task["history"]) if "history" in task else None) == shown


def test_a24_one_message_is_one_task_over_whichever_binding_it_comes(shared: Server) -> None:
    sent = message("once")
    with ThreadPoolExecutor(8) as pool:
        sends = [pool.submit(ALL[n % 4].ask, shared, "SendMessage", {"message": sent}) for n in range(12)]
        tasks = [send.result().task for send in sends]
    assert all(task == tasks[0] for task in tasks)
    for binding in ALL:
        again = binding.ask(shared, "SendMessage", {"message": sent | {"parts": [{"text": "twice"}]}})
        assert again.reason == "MESSAGE_ID_REUSED"


def test_a24_a_message_with_whole_numbers_is_one_task_though_one_binding_has_none(shared: Server) -> None:
    sent = message(
        parts=[{"data": {"i": 1, "many": [2, -3.0, 10**15], "half": 0.5}}], metadata={"skill": "echo", "n": 7}
    )
    tasks = [
        binding.ask(shared, "SendMessage", {"message": sent, "configuration": {"historyLength": 0}}) for binding in ALL
    ]
    assert len({answer.task["id"] for answer in tasks}) == 1


def test_a21_a_wait_ends_at_its_deadline_with_the_tasks_id_and_the_task_goes_on(
    impatient: Server, model: ScriptedModel, binding: Binding
) -> None:
    model.rules([{"gate": "g", "text": "later"}])
    answer = binding.ask(impatient, "SendMessage", {"message": said()})
    assert (answer.status, answer.reason) == (504, "BLOCKING_DEADLINE_EXCEEDED")
    model.open("g")
    assert answer_of(impatient.ended(answer.metadata["taskId"])) == "later"


@pytest.fixture(scope="module")
def bare(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without a worker, which pushes nothing."""
    env = asking(shared_model) | served() | {"OUTRIDER_PUSH": "false"}
    with Server(tmp_path_factory.mktemp("bare") / "data", "--no-worker", env=env) as server:
        yield server


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
def test_a34_without_a_worker_a_send_is_refused_with_the_time_to_try_again(
    bare: Server, binding: Binding, method: str
) -> None:
    with wire.nothing_stored(bare):
        answer = binding.ask(bare, method, {"message": message()})
    assert (answer.status, answer.reason) == (503, "WORKER_UNAVAILABLE")


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("SendMessage", {"message": message(), "configuration": {"taskPushNotificationConfig": {"url": PUBLIC}}}),
        ("CreateTaskPushNotificationConfig", {"taskId": "t", "url": PUBLIC}),
        ("GetTaskPushNotificationConfig", {"taskId": "t", "id": "p"}),
        ("ListTaskPushNotificationConfigs", {"taskId": "t"}),
        ("DeleteTaskPushNotificationConfig", {"taskId": "t", "id": "p"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a94_where_nothing_is_pushed_each_of_its_methods_is_refused(
    bare: Server, binding: Binding, method: str, params: Json
) -> None:
    with wire.nothing_stored(bare):
        answer = binding.ask(bare, method, params)
    assert (answer.status, answer.reason) == (binding.status(answer.reason), "PUSH_NOTIFICATION_NOT_SUPPORTED")


@pytest.mark.parametrize("depth", [33, 101, 5000])
def test_a85_data_that_is_nested_too_deep_is_refused_by_the_field_that_it_is_in(shared: Server, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    sent = json.dumps({"message": message(parts=[{"data": "HERE"}])}).replace('"HERE"', nested)
    with wire.nothing_stored(shared):
        one, other = (binding.post(shared, "SendMessage", sent) for binding in BINDINGS)
    assert one.reason == other.reason == INVALID
    if depth == 33:
        assert one.said == other.said and one.message.startswith("message.parts[0].data:")


def test_data_as_deep_as_may_be_is_taken(shared: Server, binding: Binding) -> None:
    nested = '{"in":' + "[" * 31 + "]" * 31 + "}"
    sent = json.dumps({"message": message(parts=[{"data": "HERE"}])}).replace('"HERE"', nested)
    assert binding.post(shared, "SendMessage", sent).task["status"]["state"] == COMPLETED


def test_a86_numbers_come_back_as_they_were_sent(shared: Server, binding: Binding) -> None:
    data = '{"i": 1, "big": 9007199254740993, "f": 1.5, "n": null, "huge": 123456789012345678901234567890}'
    sent = json.dumps({"message": message(parts=[{"data": "HERE"}])}).replace('"HERE"', data)
    task = binding.post(shared, "SendMessage", sent).result["task"]
    (part,) = task["artifacts"][0]["parts"]
    whole = float if binding is GRPC else int  # there are no other numbers in its messages
    assert part["data"] == json.loads(data, parse_int=whole)
    assert [type(part["data"][name]) for name in ("i", "big", "f", "n")] == [whole, whole, float, type(None)]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a86_what_is_no_number_of_json_does_not_come_in(shared: Server, binding: Binding, number: str) -> None:
    sent = json.dumps({"message": message(parts=[{"data": {"x": "HERE"}}])}).replace('"HERE"', number)
    with wire.nothing_stored(shared):
        assert binding.post(shared, "SendMessage", sent).reason == INVALID


@pytest.mark.parametrize("chunked", [False, True], ids=["by its length", "in chunks"])
def test_a84_a_body_over_the_limit_is_refused_in_the_bindings_own_form(
    shared: Server, binding: Binding, chunked: bool
) -> None:
    body = json.dumps({"x": "y" * 4 * 1024 * 1024}).encode()
    pieces = iter([body[start : start + 65536] for start in range(0, len(body), 65536)])
    with wire.nothing_stored(shared):
        answer = binding.post(shared, "SendMessage", pieces if chunked else body)
    assert answer.reason == "REQUEST_TOO_LARGE" and answer.status == binding.status("REQUEST_TOO_LARGE")


# --- streams and cancels ----------------------------------------------------------------------------------------------


def test_a43_a_stream_is_one_task_then_updates_and_their_sum_is_what_get_shows(
    shared: Server, binding: Binding
) -> None:
    with binding.stream(shared, "SendStreamingMessage", {"message": message("in pieces")}) as told:
        frames = list(told)
    kinds = [name for frame in frames for name in frame]
    assert kinds[0] == "task" and set(kinds[1:]) == {"statusUpdate", "artifactUpdate"}
    assert wire.replayed(frames) == wire.get(shared, frames[0]["task"]["id"])


def test_a39_subscribers_over_all_bindings_are_told_the_same(shared: Server, model: ScriptedModel) -> None:
    model.rules([{"gate": "g", "text": "for all"}])
    task = wire.start(shared, said())
    model.held_at("g")
    asked = ("SubscribeToTask", {"id": task["id"]})
    shared.wait(lambda: wire.get(shared, task["id"])["status"]["state"] == wire.WORKING)
    with ExitStack() as open_streams:
        told = [open_streams.enter_context(binding.stream(shared, *asked)) for binding in ALL]
        first = [next(frames) for frames in told]
        model.open("g")
        rest = [list(frames) for frames in told]
    assert all(each == first[0] for each in first) and all(each == rest[0] != [] for each in rest)


def test_a52_a_cancel_with_or_without_a_word_has_the_same_effect(
    shared: Server, model: ScriptedModel, binding: Binding
) -> None:
    model.rules([{"gate": "never", "text": "too late"}])
    task = wire.start(shared, said())
    asked = {"id": task["id"], "metadata": {"reason": "x"}}
    with binding.stream(shared, "SubscribeToTask", {"id": task["id"]}) as told:
        next(told)
        canceled = binding.ask(shared, "CancelTask", asked).result
        *_, last = told
    assert canceled["status"]["state"] == last["statusUpdate"]["status"]["state"] == CANCELED
    assert canceled["status"]["message"]["parts"] == [{"text": "Canceled by its user."}]
    assert "reason" not in canceled.get("metadata", {})
    assert wire.get(shared, task["id"]) == canceled


def test_f060_a_stream_that_has_lasted_its_time_says_so_in_its_bindings_form(
    impatient: Server, model: ScriptedModel, binding: Binding
) -> None:
    model.rules([{"gate": "g", "text": "later"}])
    with binding.stream(impatient, "SendStreamingMessage", {"message": said()}) as told:
        *before, last = told
    assert last["error"][0]["reason"] == "STREAM_EXPIRED" and not any("error" in frame for frame in before)
    model.open("g")
    assert answer_of(impatient.ended(before[0]["task"]["id"])) == "later"


@pytest.fixture
def taken(impatient: Server, model: ScriptedModel) -> Iterator[Server]:
    """A server whose one stream is taken."""
    model.rules([{"gate": "g", "text": "x"}])
    with BINDINGS[0].stream(impatient, "SendStreamingMessage", {"message": said()}) as told:
        next(told)
        yield impatient
    model.open("g")


def test_f057_a_stream_more_than_there_is_room_for_is_refused_before_it_begins(taken: Server, binding: Binding) -> None:
    with wire.nothing_stored(taken):
        answer = binding.ask(taken, "SendStreamingMessage", {"message": message()})
    assert (answer.status, answer.reason) == (503, "STREAM_LIMIT_REACHED")
    assert answer.metadata == {"limit": "OUTRIDER_MAX_STREAMS"}


# --- push configs -----------------------------------------------------------------------------------------------------


def test_a_push_config_made_over_one_binding_is_read_and_deleted_over_the_other(shared: Server) -> None:
    task = wire.send(shared, message())["id"]
    asked: dict[str, Any] = {"taskId": task, "id": "mine"}
    for one, other in permutations(ALL, 2):
        config = {**asked, "url": PUBLIC, "token": "hush"}
        made = one.ask(shared, "CreateTaskPushNotificationConfig", config)
        assert made.result == {**asked, "url": config["url"]}
        for each in (one, other):
            assert each.ask(shared, "GetTaskPushNotificationConfig", asked).said == made.said
            listed = each.ask(shared, "ListTaskPushNotificationConfigs", {"taskId": task})
            assert listed.result == {"configs": [made.result]}
        assert other.ask(shared, "DeleteTaskPushNotificationConfig", asked).result == {}
        assert one.ask(shared, "GetTaskPushNotificationConfig", asked).reason == NOT_FOUND
