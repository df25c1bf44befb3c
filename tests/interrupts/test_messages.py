"""S61, A30: a message to a task at work is in its history at once, and the task does not complete without it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.a2a import wire
from tests.a2a.wire import CANCELED, COMPLETED, FAILED
from tests.interrupts import words
from tests.interrupts.words import PARKED
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of
from tests.support.trial import Trial


def users(model: ScriptedModel) -> list[str]:
    """What the newest request to the model has its user say, in order."""
    return [message["content"] for message in model.requests()[-1].messages if message["role"] == "user"]


def texts(task: wire.Json) -> list[str]:
    return [part["text"] for artifact in task["artifacts"] for part in artifact["parts"]]


def test_s61_a_message_to_a_running_task_is_taken_in_between_two_steps(
    server: Server, model: ScriptedModel, trial: Trial
) -> None:
    model.rules(
        [words.calling(("shout", {"text": "hey"}), gate="first"), {"anywhere": "and this", "text": "Both done."}]
    )
    task = words.began(server, "do that")
    model.held_at("first")
    followed = wire.start(server, words.answer(task, "and this"))
    assert followed["id"] == task["id"] and words.said(followed) == ["do that", "and this"]
    model.open("first")
    ended = server.ended(task["id"])
    assert ended["status"]["state"] == COMPLETED and texts(ended) == ["Both done."]
    assert users(model) == ["do that", "and this"] and len(model.requests()) == 2


def test_a30_a_message_that_comes_during_the_last_answer_reopens_the_task_and_both_answers_stand_in_order(
    server: Server, model: ScriptedModel
) -> None:
    model.rules([{"last_user": "^one$", "text": "First.", "gate": "last"}, {"last_user": "^two$", "text": "Second."}])
    task = words.began(server, "one")
    model.held_at("last")
    sent = words.answer(task, "two")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(wire.send, server, sent)
        server.wait(lambda: words.said(wire.get(server, task["id"])) == ["one", "two"])
        model.open("last")
        ended = waiting.result(20)
    assert ended["status"]["state"] == COMPLETED and len(ended["artifacts"]) == 1
    assert texts(ended) == ["First.", "Second."]
    assert wire.start(server, sent)["id"] == task["id"]
    assert words.said(wire.get(server, task["id"])) == ["one", "two"]


def test_s61_a_message_to_a_queued_task_waits_and_is_taken_in(server: Server, model: ScriptedModel) -> None:
    model.rules([{"last_user": "^ahead$", "text": "Ahead.", "gate": "ahead"}, {"text": "Behind."}])
    context = wire.fresh()
    words.began(server, "ahead", contextId=context)
    behind = words.began(server, "behind", contextId=context)
    model.held_at("ahead")
    wire.start(server, words.answer(behind, "more of it"))
    model.open("ahead")
    assert texts(server.ended(behind["id"])) == ["Behind."]
    assert users(model)[-2:] == ["behind", "more of it"] and len(model.requests()) == 2


def test_a_message_that_comes_while_a_step_asks_waits_for_the_answer_and_is_then_taken_in(
    server: Server, model: ScriptedModel
) -> None:
    model.rules([words.asking(gate="ask"), {"anywhere": "by the way", "text": "All."}])
    task = words.began(server)
    model.held_at("ask")
    wire.start(server, words.answer(task, "by the way"))
    model.open("ask")
    task = words.parked(server, task["id"])
    assert words.said(task) == ["go", "by the way", "Which one?"]
    assert texts(words.answered(server, task, "this one")) == ["All."]
    assert users(model) == ["go", "by the way"]


def test_s61_a_handler_is_run_again_for_a_message_and_both_results_stand_in_order(server: Server, trial: Trial) -> None:
    door = wire.fresh("door")
    task = words.began(server, f"wait {door}; echo one", "trial")
    server.wait(lambda: len(trial.diary()) == 1)
    wire.start(server, words.answer(task, "echo two"))
    wire.start(server, words.answer(task, "echo three"))
    trial.open(door)
    ended = server.ended(task["id"])
    assert texts(ended) == ["one", "two", "three"]
    assert len({artifact["artifactId"] for artifact in ended["artifacts"]}) == 3
    assert [line.split(maxsplit=2)[2] for line in trial.diary()] == [f"wait {door}; echo one", "echo two", "echo three"]


def test_a_handler_that_asks_the_same_for_two_messages_gets_an_answer_to_each(server: Server, trial: Trial) -> None:
    door = wire.fresh("door")
    task = words.began(server, f"wait {door}; ask Which?", "trial")
    server.wait(lambda: len(trial.diary()) == 1)
    wire.start(server, words.answer(task, "ask Which?"))
    trial.open(door)
    first = words.parked(server, task["id"])
    second = words.answered(server, first, "red", words.digest(first))
    assert second["status"]["state"] == PARKED and words.digest(second) != words.digest(first)
    assert texts(words.answered(server, second, "blue", words.digest(second))) == ["red", "blue"]


@pytest.mark.parametrize("end", [COMPLETED, FAILED, CANCELED])
@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
def test_a28_a_message_to_a_task_that_has_ended_is_refused_in_plain_json_and_nothing_is_stored(
    server: Server, model: ScriptedModel, end: str, method: str
) -> None:
    model.rules([{"last_user": "^fail", "status": 400}, {"last_user": "^wait", "gate": "never"}, {"text": "x"}])
    task = words.began(server, {COMPLETED: "work", FAILED: "fail", CANCELED: "wait"}[end])
    if end == CANCELED:
        wire.cancel(server, task["id"])
    ended = server.ended(task["id"])
    with wire.nothing_stored(server):
        answer = wire.post(server, method, {"message": words.answer(task)})
    assert ended["status"]["state"] == end and wire.told(answer) == (200, -32004, "UNSUPPORTED_OPERATION")
    assert wire.get(server, task["id"]) == ended


def test_a30_at_whatever_moment_a_message_comes_it_is_taken_in_or_refused_and_never_dropped(
    server: Server, model: ScriptedModel
) -> None:
    model.rules([{"text": "ok"}])

    def steered(number: int) -> None:
        task = words.began(server, f"task {number}")
        accepted = []
        for later in range(6):
            sent = {"message": words.answer(task, f"more {later}"), "configuration": {"returnImmediately": True}}
            answer = wire.post(server, "SendMessage", sent)
            if "error" in answer.json():
                assert wire.told(answer)[1] == -32004
                break
            accepted.append(f"more {later}")
        ended = server.ended(task["id"])
        assert ended["status"]["state"] == COMPLETED, ended
        assert words.said(ended) == [f"task {number}", *accepted]
        read = [[m["content"] for m in asked.messages if m["role"] == "user"] for asked in model.requests()]
        assert [f"task {number}", *accepted] in read, [each for each in read if each[0] == f"task {number}"]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(steered, range(20)))


def test_s61_a_message_that_was_accepted_survives_kills_and_is_taken_in_once(
    own: Callable[..., Server], model: ScriptedModel
) -> None:
    """Killed when it was accepted, and again when it was taken up and its answer was not yet there; then more come."""
    server = own(OUTRIDER_LEASE_S="2")
    model.rules([{"last_user": "^one$", "text": "lost", "gate": "a"}])
    task = words.began(server, "one")
    model.held_at("a")
    wire.start(server, words.answer(task, "two"))
    server.kill()
    model.rules([{"last_user": "^one$", "text": "First."}, {"last_user": "^two$", "text": "lost", "gate": "b"}])
    server.start()
    model.held_at("b")
    server.kill()
    model.rules([{"last_user": "^three$", "text": "Second.", "gate": "c"}, {"last_user": "^four$", "text": "Third."}])
    door = own("--no-worker", data=server.data)
    wire.start(door, words.answer(task, "three"))
    door.kill()
    server.start()
    model.held_at("c")
    wire.start(server, words.answer(task, "four"))
    model.open("c")
    ended = server.ended(task["id"])
    assert texts(ended) == ["First.", "Second.", "Third."] and words.said(ended) == ["one", "two", "three", "four"]
    assert len(model.requests()) == 2
    server.ended(words.began(server, "next", contextId=task["contextId"])["id"])
    assert users(model) == ["one", "two", "three", "four", "next"]


def test_s61_a_handlers_result_is_kept_when_a_message_reopens_it_and_it_is_killed(
    own: Callable[..., Server], trial: Trial
) -> None:
    server, first, second = own(OUTRIDER_LEASE_S="1"), wire.fresh("door"), wire.fresh("door")
    task = words.began(server, f"wait {first}; note once; echo one", "trial")
    server.wait(lambda: len(trial.diary()) == 1)
    wire.start(server, words.answer(task, f"wait {second}; echo two"))
    trial.open(first)
    server.wait(lambda: len(trial.diary()) == 3)
    server.restart()
    server.wait(lambda: len(trial.diary()) == 4)
    trial.open(second)
    assert texts(server.ended(task["id"])) == ["one", "two"] and trial.diary().count("once") == 1


def test_over_the_api_a_message_names_the_task_that_it_is_for(server: Server, model: ScriptedModel) -> None:
    model.rules([{"last_user": "^one$", "text": "First.", "gate": "g"}, {"text": "Second."}])
    session = wire.fresh("s")
    task_id = server.say(session, "one", skill="asker")
    model.held_at("g")
    assert server.say(session, "two", task_id=task_id) == task_id
    model.open("g")
    assert answer_of(server.ended(task_id)) == "First.\nSecond."
    log = [(said["kind"], said["text"]) for said in server.messages(session)]
    assert log == [("user", "one"), ("user", "two"), ("agent", "First.\n\nSecond.")]


def test_f019_a_message_to_a_task_at_work_is_held_to_what_its_profile_takes(server: Server, trial: Trial) -> None:
    """And an answer to its question is not: that has a form of its own."""
    context = wire.fresh()
    ahead = words.asked(server, "ask Which?", "trial", contextId=context)
    fits: dict[str, Any] = {"parts": [{"data": {"run": "ask What?"}}]}
    task = words.began(server, skill="short", contextId=context, **fits)
    assert words.refusal(server, words.answer(task, parts=[{"data": {"run": 5}}]))[1] == -32602
    wire.start(server, words.answer(task, **fits))
    words.answered(server, ahead)
    server.wait(lambda: wire.get(server, task["id"])["status"]["state"] == COMPLETED)
