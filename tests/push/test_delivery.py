"""What a receiver gets, over real HTTP: every state once and in order, with credentials, whatever the receiver does."""

import json
import threading
import time

import pytest
from a2a.types import a2a_pb2 as types

from tests.a2a import wire
from tests.push.hooks import WHOLE, deliveries, echo, hook, inline, method, states
from tests.support.receiver import Answer, Received, Receiver
from tests.support.scripted import ScriptedModel
from tests.support.server import Server


def told(calls: list[Received]) -> list[str]:
    return [call.told for call in calls]


@pytest.mark.parametrize("way", ["at once", "blocking", "streaming"])
def test_A91_every_way_of_sending_tells_its_webhook_all_of_it(server: Server, receiver: Receiver, way: str) -> None:
    """F083: the states, the artifact between them, each a StreamResponse with one member that the official types know."""
    config = inline(hook(receiver)) | {"returnImmediately": way == "at once"}
    sent = {"message": wire.message("to and fro"), "configuration": config}
    if way == "streaming":
        with wire.stream(server, "SendStreamingMessage", sent) as frames:
            list(frames)
    else:
        wire.result(wire.post(server, "SendMessage", sent))
    calls = receiver.wait(4)
    assert told(calls) == WHOLE
    for call in calls:
        assert call.method == "POST" and call.headers["content-type"] == "application/a2a+json"
        wire.strictly(call.event, types.StreamResponse())
    assert calls[2].event["artifactUpdate"]["artifact"]["parts"] == [{"text": "to and fro"}]


def test_A89_each_call_carries_the_credentials_and_a_name_of_its_own(server: Server, receiver: Receiver) -> None:
    """F084: attempts are counted, and an event's name is no other's."""
    task = echo(server, hook(receiver, token="k", authentication={"scheme": "Bearer", "credentials": "abc"}))
    calls = receiver.wait(4)
    assert {call.headers["authorization"] for call in calls} == {"Bearer abc"}
    assert {call.headers["x-a2a-notification-token"] for call in calls} == {"k"}
    assert [call.attempt for call in calls] == [1, 1, 1, 1] and len({call.delivery for call in calls}) == 4
    server.wait(lambda: states(server, task) == ["delivered"] * 4)
    assert [delivery["id"] for delivery in deliveries(server, task)] == [call.delivery for call in calls]


def test_a_failed_and_a_canceled_task_tell_so(server: Server, receiver: Receiver, model: ScriptedModel) -> None:
    """F083: every end; nothing comes after it."""
    model.rules(
        [{"last_user": "fail", "finish_reason": "length", "text": "half"}, {"last_user": "wait", "gate": "never"}]
    )
    for text, end in (("fail", "FAILED"), ("wait", "CANCELED")):
        before = len(receiver.calls)
        sent = {"message": wire.said(text), "configuration": inline(hook(receiver))}
        task = wire.result(wire.post(server, "SendMessage", sent))["task"]["id"]
        receiver.wait(before + 2)
        if end == "CANCELED":
            wire.cancel(server, task)
        last = receiver.wait_for(end).event["statusUpdate"]
        assert last["taskId"] == task and last["status"] == wire.get(server, task)["status"]
        assert last.get("metadata") == wire.get(server, task).get("metadata")


def test_what_a_webhook_is_told_is_what_a_stream_is_told(server: Server, receiver: Receiver) -> None:
    """F030, F041: the same events, in the same order, with the same times."""
    sent = {"message": wire.message("alike"), "configuration": inline(hook(receiver))}
    with wire.stream(server, "SendStreamingMessage", sent) as frames:
        streamed = list(frames)[1:]
    told = [call.event for call in receiver.wait(4)]
    assert told[-len(streamed) :] == streamed


def test_a_webhook_that_is_made_later_is_told_what_comes_later(
    server: Server, receiver: Receiver, model: ScriptedModel
) -> None:
    model.rules([{"gate": "g", "text": "late"}])
    task = wire.start(server, wire.said())["id"]
    server.wait(lambda: wire.get(server, task)["status"]["state"] == wire.WORKING)
    method(server, "Create", taskId=task, **hook(receiver))
    model.open("g")
    assert told(receiver.wait(2)) == ["artifact", "COMPLETED"]


def test_a_deleted_webhook_is_told_nothing_more(server: Server, receiver: Receiver, model: ScriptedModel) -> None:
    """F083: also not what waits behind a call that is being made."""
    gate = threading.Event()
    receiver.answers = [Answer(gate=gate)]
    model.rules([{"text": "done", "gate": "both are registered"}])
    with Receiver() as other:
        sent = {"message": wire.said(), "configuration": inline(hook(receiver))}
        task = wire.result(wire.post(server, "SendMessage", sent))["task"]["id"]
        method(server, "Create", taskId=task, id="other", **hook(other))
        model.open("both are registered")
        server.ended(task)
        receiver.wait(1)
        method(server, "Delete", taskId=task, id=task)
        gate.set()
        other.wait_for("COMPLETED")
    assert len(receiver.calls) == 1


# -- receivers that do not do as they should


def test_A90_a_slow_receiver_holds_up_neither_the_task_nor_another_receiver(server: Server) -> None:
    gate = threading.Event()
    with Receiver() as slow, Receiver() as quick:
        slow.otherwise = Answer(gate=gate)
        began = time.monotonic()
        config = inline(hook(slow), returnImmediately=False)
        task = wire.result(wire.post(server, "SendMessage", {"message": wire.message(), "configuration": config}))[
            "task"
        ]
        assert task["status"]["state"] == wire.COMPLETED
        echo(server, hook(quick))
        assert told(quick.wait(4)) == WHOLE
        assert time.monotonic() - began < 8, "a call may take 10 s"
        assert len(slow.calls) == 1
        gate.set()
        assert told(slow.wait(4)) == WHOLE


def test_A90_a_call_that_failed_is_made_again_before_the_next(server: Server, receiver: Receiver) -> None:
    """F084: the same name, one attempt more."""
    receiver.answers = [503]
    task = echo(server, hook(receiver))
    calls = receiver.wait(5)
    assert told(calls) == ["SUBMITTED", *WHOLE]
    assert calls[0].delivery == calls[1].delivery and [call.attempt for call in calls] == [1, 2, 1, 1, 1]
    server.wait(lambda: states(server, task) == ["delivered"] * 4)
    first, *_ = deliveries(server, task)
    assert first["attempts"] == 2 and first["last_error"] == "the answer was HTTP 503"


def test_A88_a_redirect_to_another_place_is_not_followed(server: Server, receiver: Receiver) -> None:
    with Receiver() as private:
        receiver.answers = [Answer(302, {"Location": private.url}), Answer(307, {"Location": private.url})]
        task = echo(server, hook(receiver))
        server.wait(lambda: len(receiver.calls) > 1)
        assert "redirect" in deliveries(server, task)[0]["last_error"]
        assert private.connections == 0


# -- large ones


def test_a_large_result_arrives_as_a_marker_and_is_whole_by_get(server: Server, receiver: Receiver) -> None:
    """F087."""
    text = "x" * 999_000
    task = echo(server, hook(receiver), text)
    calls = receiver.wait(4)
    assert told(calls) == WHOLE and all(len(call.body) <= 256 * 1024 for call in calls)
    withheld = calls[2].event["artifactUpdate"]["artifact"]["metadata"]["withheld"]
    assert withheld["reason"] == "TOO_LARGE" and withheld["bytes"] > 999_000
    assert wire.get(server, task)["artifacts"][0]["parts"] == [{"text": text}]


# -- untrusted text


def test_whatever_is_said_is_content_of_a_body_and_nothing_else(server: Server, receiver: Receiver) -> None:
    """F177: no header, no second line in the log, no member of the event."""
    hostile = 'a\r\nX-Evil: 1\r\n\r\n{"task": {}} \u2028 </script> ${jndi:x} \u202e'
    echo(server, hook(receiver), hostile)
    calls = receiver.wait(4)
    assert calls[2].event["artifactUpdate"]["artifact"]["parts"] == [{"text": hostile}]
    assert all("x-evil" not in call.headers and len(json.loads(call.body)) == 1 for call in calls)
    assert "X-Evil" not in server.log()
