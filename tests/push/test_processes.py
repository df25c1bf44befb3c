"""Who calls, and what becomes of a call whose caller dies: real processes, cut off, killed and started again."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.a2a import wire
from tests.push.conftest import OPEN
from tests.push.hooks import WHOLE, deliveries, echo, hook, method, states
from tests.support.receiver import Answer, Receiver
from tests.support.server import Process, Server


class CutOff(Server):
    """A server that reaches nobody."""

    module = "tests.push.cut_off"


@pytest.fixture
def cut_off(tmp_path: Path) -> Iterator[Server]:
    with CutOff(tmp_path / "data", "--no-worker", env=OPEN) as server:
        yield server


def test_a_web_process_that_is_cut_off_has_its_webhooks_called_by_a_worker(
    cut_off: Server, worker_factory: Callable[..., Process], receiver: Receiver
) -> None:
    """F082: no request opens a connection; also a name that cannot be looked up now is taken."""
    worker_factory(cut_off, **OPEN)
    task = echo(cut_off, hook(receiver))
    calls = receiver.wait(4)
    assert [call.told for call in calls] == WHOLE
    method(cut_off, "Create", taskId=task, id="named", **hook("https://hook.example/"))
    assert {line for line in cut_off.log().splitlines() if "CUT OFF" in line} == {"CUT OFF: getaddrinfo"}


def test_a_worker_that_is_killed_in_a_call_is_followed_by_one_that_calls_again(
    own: Callable[..., Server], worker_factory: Callable[..., Process], receiver: Receiver
) -> None:
    """F084: the same name, one attempt more, and the rest in order behind it."""
    soon = {"OUTRIDER_LEASE_S": "1", **OPEN}
    server = own("--no-worker", **soon)
    worker = worker_factory(server, **soon)
    gate = threading.Event()
    receiver.answers = [200, 200, Answer(gate=gate)]
    task = echo(server, hook(receiver))
    receiver.wait(3)
    worker.kill()
    gate.set()
    worker.start()
    calls = receiver.wait(5)
    assert [call.told for call in calls] == ["SUBMITTED", "WORKING", "artifact", "artifact", "COMPLETED"]
    assert calls[2].delivery == calls[3].delivery and [call.attempt for call in calls[2:]] == [1, 2, 1]
    assert calls[2].body == calls[3].body
    server.wait(lambda: states(server, task) == ["delivered"] * 4)


def test_a_worker_that_is_told_to_stop_hands_its_call_back_and_it_counts_for_nothing(
    own: Callable[..., Server], worker_factory: Callable[..., Process], receiver: Receiver
) -> None:
    server = own("--no-worker")
    worker = worker_factory(server, OUTRIDER_SHUTDOWN_GRACE_S="0", **OPEN)
    gate = threading.Event()
    receiver.answers = [Answer(gate=gate)]
    task = echo(server, hook(receiver))
    receiver.wait(1)
    assert worker.stop() == 0
    gate.set()
    assert deliveries(server, task)[0]["state"] == "due"
    worker.start()
    assert receiver.wait_for("COMPLETED")
    assert [call.told for call in receiver.calls] == ["SUBMITTED", *WHOLE]


def test_while_push_is_switched_off_what_waits_waits(own: Callable[..., Server], receiver: Receiver) -> None:
    receiver.otherwise = 500
    server = own()
    task = echo(server, hook(receiver))
    server.ended(task)
    server.stop()
    server.env["OUTRIDER_PUSH"] = "false"
    receiver.otherwise = 200
    seen = len(receiver.calls)
    server.start()
    wire.send(server, wire.message())
    assert len(receiver.calls) == seen
    server.stop()
    server.env["OUTRIDER_PUSH"] = "true"
    server.start()
    receiver.wait_for("COMPLETED")
    assert [call.told for call in receiver.calls[seen:]] == WHOLE
