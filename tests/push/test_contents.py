"""What a webhook may be told of content: questions, pieces, what is masked, and nothing of what was withheld."""

import threading
from collections.abc import Callable

import pytest

from tests.a2a import wire
from tests.push.hooks import hook, inline, states
from tests.support.receiver import Answer, Receiver
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.trial import PROFILES as TRIALS
from tests.support.trial import Trial

TOML = """
[profiles.masked]
description = "Masks."
handler = "trial"
answer_level = "redacted"

[profiles.free]
description = "Is not guarded."
handler = "trial"
output_guard = false

[providers.openai]
answer_level = "metadata"
"""
OFFERED = "chat,echo,trial,masked,free"
CANARY = "canary-4471"
PAUSED = ["SUBMITTED", "WORKING", "INPUT_REQUIRED"]


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("trial"))


@pytest.fixture(scope="module")
def asker(serving: Callable[..., Server], trial: Trial) -> Server:
    """A server whose plugin asks, and whose model's provider keeps nothing."""
    return serving(toml=TRIALS + TOML, **trial.env(OFFERED))


@pytest.fixture(scope="module")
def guarded(serving: Callable[..., Server], trial: Trial) -> Server:
    """A server with an output guard."""
    return serving(toml=TRIALS + TOML, **trial.env(OFFERED, TRIAL="guard"))


def told(receiver: Receiver) -> list[str]:
    return [call.told for call in receiver.calls]


def begin(server: Server, receiver: Receiver, text: str, skill: str | None = "trial") -> str:
    """A message with a webhook. Its task's id."""
    sent = {"message": wire.message(text, skill), "configuration": inline(hook(receiver))}
    return wire.result(wire.post(server, "SendMessage", sent))["task"]["id"]


@pytest.mark.parametrize(("verb", "state"), [("ask", "INPUT_REQUIRED"), ("auth", "AUTH_REQUIRED")])
def test_a_parked_task_tells_its_question_and_then_its_end(
    asker: Server, receiver: Receiver, verb: str, state: str
) -> None:
    """F083: every state. The question's digest comes along, so that it can be answered from what was told."""
    task = begin(asker, receiver, f"{verb} Which of the two?")
    status = receiver.wait_for(state).event["statusUpdate"]["status"]
    assert status == wire.get(asker, task)["status"]
    assert status["message"]["parts"][0] == {"text": "Which of the two?"}
    digest = status["message"]["metadata"]["question"]
    wire.start(asker, wire.message("the first", None, taskId=task, metadata={"question": digest}))
    receiver.wait_for("COMPLETED")
    assert told(receiver) == ["SUBMITTED", "WORKING", state, "WORKING", "artifact", "COMPLETED"]


def test_an_answer_may_bring_a_webhook_of_its_own(asker: Server, receiver: Receiver) -> None:
    """It is told what comes of the answer; the one before is told that too."""
    with Receiver() as other:
        task = begin(asker, receiver, "ask Which one?")
        receiver.wait_for("INPUT_REQUIRED")
        answer = wire.message("this", None, taskId=task)
        sent = {"message": answer, "configuration": inline(hook(other, id="other"))}
        wire.result(wire.post(asker, "SendMessage", sent))
        other.wait_for("COMPLETED")
        receiver.wait_for("COMPLETED")
    assert told(other) == ["WORKING", "artifact", "COMPLETED"]
    assert told(receiver) == [*PAUSED, *told(other)]


def test_a_message_to_a_waiting_task_may_bring_one_too(asker: Server, receiver: Receiver, trial: Trial) -> None:
    """It is told what comes after it, and not that the task was submitted."""
    context = wire.fresh()
    busy = wire.start(asker, wire.message("wait push-3", "trial", contextId=context))["id"]
    task = wire.start(asker, wire.message("echo behind it", "trial", contextId=context))["id"]
    sent = {"message": wire.message("and also", None, taskId=task), "configuration": inline(hook(receiver))}
    assert wire.result(wire.post(asker, "SendMessage", sent))["task"]["status"]["state"] == wire.SUBMITTED
    trial.open("push-3")
    asker.ended(busy)
    receiver.wait_for("COMPLETED")
    assert told(receiver)[0] == "WORKING" and "SUBMITTED" not in told(receiver)


def test_the_same_message_again_makes_no_webhook_again(asker: Server, receiver: Receiver) -> None:
    """F014: also not one that was deleted meanwhile."""
    sent = {"message": wire.message("echo once", "trial"), "configuration": inline(hook(receiver))}
    task = wire.result(wire.post(asker, "SendMessage", sent))["task"]["id"]
    receiver.wait(4)
    wire.result(wire.post(asker, "DeleteTaskPushNotificationConfig", {"taskId": task, "id": task}))
    assert wire.result(wire.post(asker, "SendMessage", sent))["task"]["id"] == task
    assert wire.result(wire.post(asker, "ListTaskPushNotificationConfigs", {"taskId": task})) == {"configs": []}


def test_pieces_of_an_answer_are_told_as_pieces_and_then_it_is_told_whole(
    asker: Server, receiver: Receiver, trial: Trial
) -> None:
    begin(asker, receiver, "fragment one; wait push-1; fragment two; wait push-2", "free")
    first = receiver.wait(3)[2].event["artifactUpdate"]
    trial.open("push-1")
    second = receiver.wait(4)[3].event["artifactUpdate"]
    trial.open("push-2")
    whole = receiver.wait(6)[4].event["artifactUpdate"]
    assert told(receiver)[-1] == "COMPLETED"
    assert [update["artifact"]["parts"][0]["text"] for update in (first, second)] == ["one", "two"]
    assert [update.get("append", False) for update in (first, second, whole)] == [False, True, False]
    assert [update.get("lastChunk", False) for update in (first, second, whole)] == [False, False, True]
    assert len({update["artifact"]["artifactId"] for update in (first, second, whole)}) == 1


def test_pieces_that_come_too_late_are_left_out_since_the_whole_has_them(asker: Server, receiver: Receiver) -> None:
    gate = threading.Event()
    receiver.answers = [Answer(gate=gate)]
    task = begin(asker, receiver, "fragment one; fragment two", "free")
    asker.ended(task)
    gate.set()
    receiver.wait_for("COMPLETED")
    assert told(receiver) == ["SUBMITTED", "WORKING", "artifact", "COMPLETED"]
    became = ["delivered", "delivered", "canceled", "canceled", "delivered", "delivered"]
    asker.wait(lambda: states(asker, task) == became)


def test_what_is_masked_for_everybody_is_masked_here(asker: Server, receiver: Receiver) -> None:
    """F088: no copy says more than Get."""
    task = begin(asker, receiver, "echo write to carol@example.org; ask Is carol@example.org right?", "masked")
    receiver.wait_for("INPUT_REQUIRED")
    wire.start(asker, wire.message("yes", None, taskId=task))
    receiver.wait_for("COMPLETED")
    (artifact,) = [call.event["artifactUpdate"]["artifact"] for call in receiver.calls if call.told == "artifact"]
    assert [artifact] == wire.get(asker, task)["artifacts"] and "write to" in artifact["parts"][0]["text"]
    assert b"carol@example.org" not in b"".join(call.body for call in receiver.calls)


def test_what_may_not_be_kept_is_not_told(asker: Server, receiver: Receiver, model: ScriptedModel) -> None:
    """F088, F045: the states and the reason, and not one word of what was said."""
    model.rules([{"text": f"the answer is {CANARY}"}])
    task = begin(asker, receiver, f"about {CANARY}", None)
    last = receiver.wait_for("FAILED").event["statusUpdate"]
    assert last["metadata"]["reason"] == "RESULT_NOT_KEPT" and wire.get(asker, task)["artifacts"] == []
    assert told(receiver) == ["SUBMITTED", "WORKING", "FAILED"]
    assert CANARY.encode() not in b"".join(call.body for call in receiver.calls)


@pytest.mark.parametrize("last", ["forbidden", "explode"])
def test_what_a_guard_refused_is_not_told(guarded: Server, receiver: Receiver, last: str) -> None:
    """F088, F050: no piece either, before the whole has passed."""
    begin(guarded, receiver, f"fragment {CANARY}; echo {CANARY}; echo {last}")
    last_told = receiver.wait_for("FAILED").event["statusUpdate"]
    assert last_told["metadata"]["reason"] == "OUTPUT_REJECTED"
    assert told(receiver) == ["SUBMITTED", "WORKING", "FAILED"]
    assert CANARY.encode() not in b"".join(call.body for call in receiver.calls)
