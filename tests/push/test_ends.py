"""A webhook ends with its task: erased, purged, or its session gone; nothing is called any more."""

import threading
from collections.abc import Callable

from tests.a2a import wire
from tests.push.hooks import WHOLE, echo, hook, refused, states
from tests.support.inside import Inside
from tests.support.receiver import Answer, Receiver

Make = Callable[..., Inside]
NOTHING = "select (select count(*) from webhooks) + (select count(*) from runs where kind = 'push') as n"


def hours(inside: Inside, count: int) -> None:
    """So many hours go by, each with its purge."""
    for _ in range(count):
        inside.pass_pause("purge")


def gone(inside: Inside, task: str) -> None:
    """Neither the webhook nor any call of it is there."""
    assert refused(inside, "Get", taskId=task, id=task) == (200, -32001, "TASK_NOT_FOUND")
    assert inside.get("/api/webhooks")["webhooks"] == []
    assert inside.http.get(f"/api/webhooks/{task}/{task}/deliveries").status_code == 404
    assert inside.rows(NOTHING) == [{"n": 0}]


def test_erasing_a_session_takes_its_webhooks_and_what_waits(inside: Make) -> None:
    """F083, F158: also behind a call that is being made."""
    outrider, gate = inside(), threading.Event()
    with Receiver() as receiver:
        receiver.answers = [Answer(gate=gate)]
        task = echo(outrider, hook(receiver))
        session = outrider.ended(task)["contextId"]
        receiver.wait(1)
        assert outrider.http.delete(f"/api/sessions/{session}").status_code == 202
        gate.set()
        gone(outrider, task)
        other = echo(outrider, hook(receiver))
        calls = receiver.wait(5)
        outrider.wait(lambda: states(outrider, other) == ["delivered"] * 4)
    assert [call.event[call.kind]["taskId"] for call in calls] == [task, *[other] * 4]


def test_a_task_that_has_outlived_its_time_goes_with_its_webhooks(inside: Make) -> None:
    """F160."""
    outrider = inside(retention_days=1)
    with Receiver() as receiver:
        task = echo(outrider, hook(receiver))
        receiver.wait(4)
        outrider.wait(lambda: states(outrider, task) == ["delivered"] * 4)
        hours(outrider, 26)
        outrider.wait(lambda: wire.post(outrider, "GetTask", {"id": task}).json().get("error"))
        gone(outrider, task)


def test_calls_that_have_ended_are_kept_for_a_day_and_the_webhook_for_as_long_as_its_task(inside: Make) -> None:
    """F084."""
    outrider = inside()
    with Receiver() as receiver:
        task = echo(outrider, hook(receiver))
        outrider.wait(lambda: states(outrider, task) == ["delivered"] * 4)
        hours(outrider, 22)
        assert len(states(outrider, task)) == 4
        hours(outrider, 4)
        outrider.wait(lambda: states(outrider, task) == [])
        assert [webhook["id"] for webhook in outrider.get("/api/webhooks")["webhooks"]] == [task]
        assert [call.told for call in receiver.calls] == WHOLE
