"""F091, F093: of two answers, an answer and a cancel, an answer and a deadline, one comes first, and the other changes nothing."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tests.a2a import wire
from tests.a2a.wire import CANCELED, COMPLETED
from tests.interrupts import words
from tests.support.inside import Inside
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of
from tests.support.trial import Trial

ROUNDS = 15


def at_once(*calls: Callable[[], wire.Json]) -> list[wire.Json]:
    """What these calls gave, all begun at the same moment."""
    barrier = Barrier(len(calls))

    def called(call: Callable[[], wire.Json]) -> wire.Json:
        barrier.wait(10)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(30) for future in [pool.submit(called, call) for call in calls]]


def sending(server: Server, sent: wire.Json) -> Callable[[], wire.Json]:
    """A call that sends a message and returns the whole envelope."""
    body = {"message": sent, "configuration": {"returnImmediately": True}}
    return lambda: wire.post(server, "SendMessage", body).json()


def test_f093_of_two_answers_at_once_one_counts_and_the_other_is_refused(server: Server) -> None:
    for _ in range(ROUNDS):
        task = words.asked(server, "ask Which?", "trial")
        mark = words.digest(task)
        answers = at_once(*(sending(server, words.answer(task, text, mark)) for text in ("red", "blue")))
        refused = [answer["error"]["code"] for answer in answers if "error" in answer]
        assert len(refused) == 1 and refused[0] in (-32602, -32004), answers
        ended = server.ended(task["id"])
        assert answer_of(ended) in ("red", "blue") and words.said(ended) == ["ask Which?", "Which?", answer_of(ended)]


def test_f091_of_an_answer_and_a_cancel_the_cancel_stays_whichever_was_first(server: Server, trial: Trial) -> None:
    """An answer that came first is in the history, and the cancel then stops what goes on; a refused one is nowhere."""
    for _ in range(ROUNDS):
        task = words.asked(server, "ask Which?; wait never", "trial")
        answer, canceled = at_once(
            sending(server, words.answer(task, "red", words.digest(task))),
            lambda task_id=task["id"]: wire.post(server, "CancelTask", {"id": task_id}).json(),
        )
        assert "result" in canceled, canceled
        shown = wire.get(server, task["id"])
        assert shown["status"]["state"] == CANCELED and "red" not in answer_of(shown)
        assert ("red" in words.said(shown)) == ("result" in answer), (answer, shown)


@pytest.mark.parametrize("ahead", [-1, 1])
def test_f091_of_an_answer_and_the_deadline_the_first_holds(
    inside: Callable[..., Inside], model: ScriptedModel, trial: Trial, ahead: int
) -> None:
    """A second before it the answer holds, a second after it the deadline does, even if nobody has looked yet."""
    house, prompt = inside(job_timeout_s=60), "a race with time"
    model.rules([words.worker(prompt, **words.paying(2)), words.worker(prompt, text="Report.")])
    job = words.in_status(house, words.job(house, "s", "parker", prompt)["id"], "input_required")
    house._now.advance(60 + ahead)  # type: ignore[attr-defined]
    answer = sending(house, wire.message("approve", None, taskId=job["task_id"]))()
    ended = words.in_status(house, job["id"], "completed", "failed")
    if ahead < 0:
        assert "result" in answer and ended["status"] == "completed" and trial.diary() == ["paid 2"]
    else:
        assert answer["error"]["code"] == -32004 and ended["error"]["reason"] == "TIMED_OUT" and trial.diary() == []
    house.wait(lambda: house.job(job["id"])["notified"])


def test_a01_a_cancel_stays_and_every_message_acknowledged_before_it_is_in_the_history(
    server: Server, model: ScriptedModel
) -> None:
    """A cancel at any moment of a task that works through steps and takes in messages."""
    model.rules([{"anywhere": "go", "tool_calls": [{"name": "shout", "arguments": {"text": "x"}}]}])
    for number in range(ROUNDS):
        task = words.began(server)
        sent = []
        for text in ("one", "two", "three")[: number % 4]:
            wire.start(server, words.answer(task, text))
            sent.append(text)
        canceled = wire.cancel(server, task["id"])
        assert canceled["status"]["state"] == CANCELED and words.said(canceled) == ["go", *sent]
        assert wire.get(server, task["id"]) == canceled


def test_a_completed_end_and_a_message_at_the_same_moment_leave_no_message_unread(server: Server) -> None:
    for number in range(ROUNDS):
        task = words.began(server, f"echo {number}", "trial")
        answer = sending(server, words.answer(task, "echo more"))()
        ended = server.ended(task["id"])
        assert ended["status"]["state"] == COMPLETED
        assert answer_of(ended) == (f"{number}\nmore" if "result" in answer else str(number))
