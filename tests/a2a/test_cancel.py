"""CancelTask: it stops what has not ended, whoever works on it, and says of everything else what that is."""

import pytest

from tests.a2a import wire
from tests.a2a.wire import CANCELED, COMPLETED, FAILED, message, said
from tests.support.scripted import ScriptedModel
from tests.support.server import Server


def test_a_running_task_is_canceled_and_its_model_call_with_it(shared: Server, model: ScriptedModel) -> None:
    model.rules([{"last_user": "^cancel this$", "gate": "never", "text": "too late"}])
    task = wire.start(shared, said("cancel this"))
    asked = model.held_at("never")
    canceled = wire.cancel(shared, task["id"])
    assert canceled["status"]["state"] == CANCELED and canceled["artifacts"] == []
    assert canceled["status"]["message"]["parts"] == [{"text": "Canceled by its user."}]
    model.wait_for(lambda _: asked.gone_at)
    model.open("never")
    assert wire.get(shared, task["id"]) == canceled
    told = [asked.last_user for asked in model.requests()]  # others on this server may ask, too
    assert told.count("cancel this") == 1


def test_a_task_that_waits_is_canceled_and_never_begins(shared: Server, model: ScriptedModel) -> None:
    model.rules([{"gate": "g", "text": "x"}])
    context = wire.fresh()
    ahead = wire.start(shared, said("ahead", contextId=context))
    behind = wire.start(shared, said("behind", contextId=context))
    model.held_at("g")
    assert wire.cancel(shared, behind["id"])["status"]["state"] == CANCELED
    model.open("g")
    assert shared.ended(ahead["id"])["status"]["state"] == COMPLETED
    assert [asked.last_user for asked in model.requests()] == ["ahead"]


@pytest.mark.parametrize("end", [COMPLETED, FAILED, CANCELED])
def test_a51_a_task_that_has_ended_is_not_cancelable_however_it_ended(
    shared: Server, model: ScriptedModel, end: str
) -> None:
    model.rules([{"last_user": "^fail", "status": 400}, {"last_user": "^wait", "gate": "never"}, {"text": "x"}])
    task = wire.start(shared, said({COMPLETED: "work", FAILED: "fail", CANCELED: "wait"}[end]))
    if end == CANCELED:
        wire.cancel(shared, task["id"])
    ended = shared.ended(task["id"])
    assert ended["status"]["state"] == end
    for _ in range(2):
        answer = wire.post(shared, "CancelTask", {"id": task["id"]})
        assert wire.told(answer) == (200, -32002, "TASK_NOT_CANCELABLE")
    assert shared.task(task["id"]) == ended


def test_a51_an_unknown_task_is_not_found(shared: Server) -> None:
    answer = wire.post(shared, "CancelTask", {"id": "nope"})
    assert wire.told(answer) == (200, -32001, "TASK_NOT_FOUND")


def test_s56_a_cancel_and_the_end_at_the_same_moment_leave_one_end_in_every_view(shared: Server) -> None:
    """Whichever is first wins; an acknowledged cancel stays, and a refused one was too late."""
    for _ in range(10):
        with wire.stream(shared, "SendStreamingMessage", {"message": message("quick")}) as frames:
            task = next(frames)["task"]
            answer = wire.post(shared, "CancelTask", {"id": task["id"]})
            ended = wire.replayed([{"task": task}, *frames])
        assert wire.get(shared, task["id"])["status"]["state"] == ended["status"]["state"]
        if "error" in answer.json():
            assert wire.told(answer) == (200, -32002, "TASK_NOT_CANCELABLE")
            assert ended["status"]["state"] == COMPLETED
        else:
            assert wire.result(answer)["status"]["state"] == ended["status"]["state"] == CANCELED
            assert ended["artifacts"] == []
