"""SendMessage: when it answers, what it makes, and what it never makes twice."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.a2a import wire
from tests.a2a.wire import COMPLETED, FAILED, SUBMITTED, WORKING, message, said
from tests.support.scripted import ScriptedModel
from tests.support.server import ENDED, ROOT, Process, Server, answer_of

Own = Callable[..., Server]
UNFINISHED = (SUBMITTED, WORKING)


def at_once(server: Server, sent: wire.Json, times: int) -> list[wire.Json]:
    """The same message so many times at the same moment; the tasks that came back."""
    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(lambda _: wire.start(server, sent), range(times)))


# --- answering at once, and waiting ---------------------------------------------------------------------------------


def test_a22_a_send_that_returns_at_once_does_not_wait_for_the_agent(shared: Server, model: ScriptedModel) -> None:
    model.rules([{"gate": "g", "text": "late"}])
    began = time.monotonic()
    task = wire.start(shared, said())
    assert time.monotonic() - began < 2 and task["status"]["state"] in UNFINISHED
    assert "artifacts" not in task
    assert not any(asked.answered_at for asked in model.requests())
    model.open("g")
    assert answer_of(shared.ended(task["id"])) == "late"


def test_a22_for_a_stream_the_flag_changes_nothing(shared: Server) -> None:
    params = {"message": message("all of it"), "configuration": {"returnImmediately": True}}
    with wire.stream(shared, "SendStreamingMessage", params) as frames:
        assert wire.replayed(list(frames))["status"]["state"] == COMPLETED


def test_a23_a_task_that_was_returned_early_gets_its_later_updates_on_streams_and_by_get(
    shared: Server, model: ScriptedModel
) -> None:
    model.rules([{"gate": "g", "text": "the end"}])
    task = wire.start(shared, said())
    model.held_at("g")
    with wire.stream(shared, "SubscribeToTask", {"id": task["id"]}) as frames:
        first = next(frames)
        model.open("g")
        seen = wire.replayed([first, *frames])
    assert seen["status"]["state"] == COMPLETED and answer_of(seen) == "the end"
    assert wire.get(shared, task["id"]) == seen


def test_a21_a_wait_ends_at_its_deadline_with_the_tasks_id_and_the_task_goes_on(
    impatient: Server, model: ScriptedModel
) -> None:
    model.rules([{"gate": "g", "text": "in the end"}])
    sent = said()
    began = time.monotonic()
    answer = wire.post(impatient, "SendMessage", {"message": sent})
    assert 1 <= time.monotonic() - began < 4
    assert wire.told(answer) == (504, -32603, "BLOCKING_DEADLINE_EXCEEDED")
    task_id = wire.info(answer)["taskId"]
    assert wire.get(impatient, task_id)["status"]["state"] == WORKING
    model.open("g")
    impatient.ended(task_id)
    again = wire.send(impatient, sent)
    assert again["id"] == task_id and answer_of(again) == "in the end", "the same message finds the task without its id"


# --- once ------------------------------------------------------------------------------------------------------------


def test_a24_twenty_at_once_are_one_task_and_one_run(shared: Server, model: ScriptedModel) -> None:
    model.rules([{"gate": "g", "text": "once"}])
    sent = said("do it")
    before = wire.rows(shared)
    ids = {task["id"] for task in at_once(shared, sent, 20)}
    assert len(ids) == 1
    after = wire.rows(shared)
    assert {name: after[name] - before[name] for name in ("tasks", "receipts", "sessions")} == {
        "tasks": 1,
        "receipts": 1,
        "sessions": 1,
    }
    model.open("g")
    (task_id,) = ids
    assert answer_of(shared.ended(task_id)) == "once"
    assert len(model.requests()) == 1
    assert wire.send(shared, sent) == wire.get(shared, task_id), "and after its end it is that ended task"
    assert len(model.requests()) == 1


def test_a24_the_same_message_in_another_order_of_members_is_the_same_message(shared: Server) -> None:
    sent = message("as it comes")
    turned = dict(reversed(sent.items()))
    assert wire.send(shared, sent)["id"] == wire.send(shared, turned)["id"]


@pytest.mark.parametrize(
    "change",
    [{"parts": [{"text": "other"}]}, {"contextId": "elsewhere"}, {"metadata": {"skill": "echo", "k": 1}}],
    ids=["text", "context", "metadata"],
)
def test_a24_the_same_id_with_another_content_is_refused(shared: Server, change: wire.Json) -> None:
    sent = message()
    wire.send(shared, sent)
    with wire.nothing_stored(shared):
        answer = wire.post(shared, "SendMessage", {"message": sent | change})
    assert wire.told(answer) == (200, -32602, "MESSAGE_ID_REUSED")


def test_a24_after_a_restart_the_same_message_is_still_the_task_it_made(impatient: Server) -> None:
    sent = message("before")
    task = wire.send(impatient, sent)
    impatient.restart()
    with wire.nothing_stored(impatient):
        assert wire.send(impatient, sent) == task
        with wire.stream(impatient, "SendStreamingMessage", {"message": sent}) as frames:
            assert [frame["task"] for frame in frames] == [task]


def test_a12_a_second_task_of_a_context_has_nothing_of_the_firsts(shared: Server) -> None:
    context = wire.fresh()
    first = wire.send(shared, message("A", contextId=context, metadata={"skill": "echo", "mark": "first"}))
    second = wire.send(shared, message("B", contextId=context))
    assert [answer_of(task) for task in (first, second)] == ["A", "B"]
    assert [len(task["artifacts"]) for task in (first, second)] == [1, 1]
    assert [[said["parts"][0]["text"] for said in task["history"]] for task in (first, second)] == [["A"], ["B"]]
    assert "mark" not in str(second) and first["artifacts"][0]["artifactId"] != second["artifacts"][0]["artifactId"]
    assert wire.get(shared, first["id"]) == first


# --- messages to tasks ----------------------------------------------------------------------------------------------


def test_a26_a_task_id_of_a_clients_own_makes_no_task(shared: Server) -> None:
    with wire.nothing_stored(shared):
        answer = wire.post(shared, "SendMessage", {"message": message(taskId="nope")})
        assert wire.told(answer) == (200, -32001, "TASK_NOT_FOUND")
    assert wire.told(wire.post(shared, "GetTask", {"id": "nope"})) == (200, -32001, "TASK_NOT_FOUND")


@pytest.fixture(params=[COMPLETED, FAILED, "TASK_STATE_CANCELED"])
def ended(request: pytest.FixtureRequest, shared: Server, model: ScriptedModel) -> wire.Json:
    """A task that has ended in each of the ways that there are."""
    if request.param == FAILED:
        model.rules([{"status": 400, "text": "no"}])
    elif request.param == COMPLETED:
        model.rules([{"text": "yes"}])
    else:
        model.rules([{"gate": "never"}])
    task = wire.start(shared, said())
    if request.param not in (COMPLETED, FAILED):
        wire.cancel(shared, task["id"])
    shared.wait(lambda: wire.get(shared, task["id"])["status"]["state"] in ENDED)
    ended = wire.get(shared, task["id"])
    assert ended["status"]["state"] == request.param
    return ended


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
def test_a28_a_message_to_an_ended_task_is_refused_and_not_stored(
    shared: Server, ended: wire.Json, method: str
) -> None:
    with wire.nothing_stored(shared):
        answer = wire.post(shared, method, {"message": message(taskId=ended["id"])})
        assert wire.told(answer) == (200, -32004, "UNSUPPORTED_OPERATION")
    assert wire.get(shared, ended["id"]) == ended


def test_a_task_and_a_context_that_do_not_match_are_refused(shared: Server) -> None:
    task = wire.send(shared, message())
    with wire.nothing_stored(shared):
        answer = wire.post(shared, "SendMessage", {"message": message(taskId=task["id"], contextId="another")})
    assert wire.told(answer) == (200, -32602, "INVALID_PARAMS") and "message.contextId" in wire.error(answer)["message"]


# --- what is not taken ----------------------------------------------------------------------------------------------


def test_a31_a_media_type_that_the_card_does_not_list_is_refused_by_its_own_code(shared: Server) -> None:
    part = {"raw": "dGNr", "mediaType": "application/x-unsupported"}
    with wire.nothing_stored(shared):
        answer = wire.post(shared, "SendMessage", {"message": message(parts=[part])})
    assert wire.told(answer) == (200, -32005, "CONTENT_TYPE_NOT_SUPPORTED")
    plain = {"raw": "dGNr"}
    assert wire.send(shared, message(parts=[plain]))["artifacts"][0]["parts"] == [plain]


def test_a_skill_that_is_not_offered_is_refused(shared: Server) -> None:
    with wire.nothing_stored(shared):
        answer = wire.post(shared, "SendMessage", {"message": message(skill="nosuch")})
    assert wire.told(answer) == (200, -32602, "INVALID_PARAMS")
    assert "message.metadata.skill: must be one of chat, echo" in wire.error(answer)["message"]


def test_a34_without_a_worker_every_send_is_refused_until_one_starts(own: Own, processes: list[Process]) -> None:
    server = own("--no-worker")
    sent = message("patience")
    with wire.nothing_stored(server):
        for method, configuration in [
            ("SendMessage", {}),
            ("SendMessage", {"returnImmediately": True}),
            ("SendStreamingMessage", {}),
        ]:
            answer = wire.post(server, method, {"message": sent, "configuration": configuration})
            assert wire.told(answer) == (503, -32000, "WORKER_UNAVAILABLE") and wire.retry_asked(answer)
    assert server.http.get("/readyz").status_code == 503
    assert status_command(server).returncode == 1
    worker = Process(server.data, "worker", env=server.env)
    processes.append(worker)
    worker.start()
    server.wait(lambda: server.http.get("/readyz").status_code == 200)
    assert answer_of(wire.send(server, sent)) == "patience"


def status_command(server: Server) -> subprocess.CompletedProcess[str]:
    """`outrider status` of a server."""
    environment = {"PATH": os.environ["PATH"], "OUTRIDER_URL": server.url}
    command = [sys.executable, "-m", "web.cli", "status"]
    return subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, timeout=20, check=False)


# --- how much history -----------------------------------------------------------------------------------------------


def first_frame(server: Server, **configuration: Any) -> wire.Json:
    params = {"message": message("said"), "configuration": configuration}
    with wire.stream(server, "SendStreamingMessage", params) as frames:
        return next(frames)["task"]


@pytest.mark.parametrize(("asked", "shown"), [({}, 1), ({"historyLength": 2}, 1), ({"historyLength": 999_999}, 1)])
def test_a53_the_latest_messages_are_shown_as_many_as_are_asked_for(
    shared: Server, asked: wire.Json, shown: int
) -> None:
    task = wire.send(shared, message("said"), **asked)
    for seen in (task, wire.get(shared, task["id"], **asked), first_frame(shared, **asked)):
        assert [said["parts"] for said in seen["history"]] == [[{"text": "said"}]] * shown
        assert seen["history"][0]["taskId"] == seen["id"] and seen["history"][0]["contextId"] == seen["contextId"]


def test_a53_none_asked_for_leaves_the_field_out(shared: Server) -> None:
    task = wire.send(shared, message(), historyLength=0)
    for seen in (task, wire.get(shared, task["id"], historyLength=0), first_frame(shared, historyLength=0)):
        assert "history" not in seen


@pytest.mark.parametrize("length", [-1, 1.5, "2", 2**31, True], ids=repr)
def test_a53_what_is_no_length_is_refused_on_every_method(shared: Server, length: Any) -> None:
    for method in ("SendMessage", "SendStreamingMessage"):
        params = {"message": message(), "configuration": {"historyLength": length}}
        with wire.nothing_stored(shared):
            answer = wire.post(shared, method, params)
        assert wire.told(answer) == (200, -32602, "INVALID_PARAMS")
        assert "configuration.historyLength" in wire.error(answer)["message"]
    answer = wire.post(shared, "GetTask", {"id": "t", "historyLength": length})
    assert wire.told(answer) == (200, -32602, "INVALID_PARAMS")
