"""F024, S78: a job never hangs on a human. What needs one is refused in words, or waits on its card up to a deadline."""

from collections.abc import Callable

import pytest

from tests.a2a import wire
from tests.a2a.wire import CANCELED, COMPLETED
from tests.cases.stories import when_told
from tests.interrupts import words
from tests.interrupts.words import PARKED
from tests.support.inside import Inside
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of
from tests.support.trial import Trial

DEADLINE_S = 600


def of_worker(prompt: str, *rules: dict[str, object]) -> list[dict[str, object]]:
    return [words.worker(prompt, **rule) for rule in rules]


def results(model: ScriptedModel, prompt: str) -> list[str]:
    """What its tools answered to the worker with this prompt."""
    asked = [asked for asked in model.requests() if asked.messages[1]["content"] == prompt][-1]
    return [message["content"] for message in asked.messages if message["role"] == "tool"]


def test_s78_what_needs_a_human_is_refused_at_once_and_the_worker_ends_with_what_it_has(
    server: Server, model: ScriptedModel, trial: Trial
) -> None:
    prompt = "s78 refused"
    ask_and_pay = words.calling(("ask_user", {"question": "Which?"}), ("pay", {"amount": 1}))
    model.rules(of_worker(prompt, ask_and_pay, {"last_tool": "^REFUSED", "text": "Report: nobody could be asked."}))
    job = words.job(server, wire.fresh("s"), "loner", prompt)
    ended = words.in_status(server, job["id"], "completed", "failed")
    assert ended["status"] == "completed" and ended["report"] == "Report: nobody could be asked."
    asked, gated = results(model, prompt)
    assert "nobody can be asked" in asked and "pay needs a person's approval" in gated
    assert trial.diary() == []
    when_told(server, job["id"])


def test_f024_after_the_third_refusal_a_worker_has_no_tools_any_more(server: Server, model: ScriptedModel) -> None:
    prompt = "f024 thrice"
    asking = [words.asking(f"{n}?") for n in range(3)]
    model.rules(of_worker(prompt, *asking, {"text": "Report."}))
    job = words.job(server, wire.fresh("s"), "loner", prompt)
    assert words.in_status(server, job["id"], "completed", "failed")["report"] == "Report."
    mine = [asked for asked in model.requests() if asked.messages[1]["content"] == prompt]
    assert [len(asked.tools) for asked in mine] == [4, 4, 4, 0]
    assert "you have no tools any more" in results(model, prompt)[-1]
    when_told(server, job["id"])


def test_f024_a_worker_that_only_asks_ends_and_leaves_no_parked_task(server: Server, model: ScriptedModel) -> None:
    """What it had written until then is its partial report, and the reason says what it did."""
    prompt = "f024 only asks"
    model.rules(of_worker(prompt, {"text": "Half a thought.", **words.asking("And now?"), "times": 99}))
    job = words.job(server, wire.fresh("s"), "loner", prompt)
    ended = words.in_status(server, job["id"], "completed", "failed")
    assert ended["status"] == "failed" and ended["error"]["reason"] == "NO_REPORT"
    assert "3 calls that need a person" in ended["error"]["message"]
    assert ended["partial"] and "Half a thought." in ended["report"]
    assert len([asked for asked in model.requests() if asked.messages[1]["content"] == prompt]) == 4
    when_told(server, job["id"])


def test_s78_a_tool_outside_the_set_is_refused_in_readable_words_and_not_executed(
    server: Server, model: ScriptedModel, trial: Trial
) -> None:
    prompt = "s78 outside"
    outside = words.calling(("shout", {"text": "hey"}), ("background_status", {"job_id": "bg-000000000000"}))
    model.rules(of_worker(prompt, outside, {"text": "Report."}))
    job = words.job(server, wire.fresh("s"), "loner", prompt)
    assert words.in_status(server, job["id"], "completed", "failed")["status"] == "completed"
    told = results(model, prompt)
    assert len(told) == 2 and all("Unknown tool name" in result for result in told) and "HEY" not in "".join(told)
    when_told(server, job["id"])


def test_a_subagent_in_the_foreground_never_parks(server: Server, model: ScriptedModel, trial: Trial) -> None:
    """Even one of a type that may: it is part of one tool call."""
    prompt = "foreground asks"
    send = words.calling(("task", {"description": "d", "prompt": prompt, "subagent_type": "parker"}))
    refused = of_worker(prompt, words.paying(3), {"last_tool": "^REFUSED: pay", "text": "Could not pay."})
    model.rules(
        [*refused, {"last_user": "^foreground$", **send}, words.ending("It could not.", last_tool="Could not pay")]
    )
    ended = wire.send(server, wire.message("foreground", "asker"))
    assert ended["status"]["state"] == COMPLETED and answer_of(ended) == "It could not." and trial.diary() == []


def test_s78_a_job_of_a_type_that_parks_shows_its_question_and_goes_on_with_the_answer(
    server: Server, model: ScriptedModel, trial: Trial
) -> None:
    prompt, session = "s78 parks", wire.fresh("s")
    model.rules(of_worker(prompt, words.paying(9), {"last_tool": "^paid 9", "text": "Report: paid."}))
    job = words.job(server, session, "parker", prompt)
    shown = words.in_status(server, job["id"], "input_required")
    assert '"amount": 9' in shown["question"]["detail"] and shown["question"]["kind"] == "approval"
    assert shown["question"]["deadline"] > shown["question"]["asked_at"] and shown["completed_at"] is None
    assert server.jobs(session, status="input_required")[0]["question"] == shown["question"]
    assert wire.get(server, shown["task_id"])["status"]["state"] == PARKED
    server.say(session, "approve", task_id=shown["task_id"], question=shown["question"]["question"])
    ended = words.in_status(server, job["id"], "completed", "failed")
    assert ended["report"] == "Report: paid." and ended["question"] is None and trial.diary() == ["paid 9"]
    when_told(server, job["id"])


def test_a_jobs_question_is_answered_only_from_the_session_that_sent_it_out(
    server: Server, model: ScriptedModel, trial: Trial
) -> None:
    prompt, session, other = "from elsewhere", wire.fresh("s"), wire.fresh("s")
    model.rules(of_worker(prompt, words.paying(9), {"text": "Report."}))
    shown = words.in_status(server, words.job(server, session, "parker", prompt)["id"], "input_required")
    server.post("/api/sessions", id=other)
    sent = {"text": "approve", "task_id": shown["task_id"]}
    with wire.nothing_stored(server):
        assert server.http.post(f"/api/sessions/{other}/messages", json=sent).status_code == 404
        assert server.http.post("/api/sessions/unknown/messages", json=sent).status_code == 404
    assert server.job(shown["id"]) == shown and trial.diary() == []
    assert server.post(f"/api/background/{shown['id']}/cancel")["status"] == "canceled"
    assert server.ended(shown["task_id"])["status"]["state"] == CANCELED
    queued = [row["kind"] for row in server.get("/api/status")["queue"] if row["queued"]]
    assert "expire" not in queued


def test_f024_past_its_deadline_a_parked_job_fails_as_timed_out_and_takes_no_answer(
    inside: Callable[..., Inside], model: ScriptedModel, trial: Trial
) -> None:
    house, prompt = inside(job_timeout_s=DEADLINE_S), "past the deadline"
    model.rules(of_worker(prompt, {"text": "I would pay.", **words.paying()}, {"text": "Report."}))
    job = words.job(house, "s", "parker", prompt)
    shown = words.in_status(house, job["id"], "input_required")
    house.pass_time(DEADLINE_S - 60)
    assert house.job(job["id"])["status"] == "input_required"
    house.pass_time(61)
    ended = words.in_status(house, job["id"], "failed")
    assert ended["error"]["reason"] == "TIMED_OUT" and ended["question"] is None
    assert wire.get(house, shown["task_id"])["metadata"]["reason"] == "TIMED_OUT"
    late = wire.message("approve", None, taskId=shown["task_id"])
    assert words.refusal(house, late)[1] == -32004
    assert trial.diary() == []
    house.wait(lambda: house.job(job["id"])["notified"])


def test_an_answer_in_time_sets_the_deadline_aside(
    inside: Callable[..., Inside], model: ScriptedModel, trial: Trial
) -> None:
    """The time that it waited is no time that it ran."""
    house, prompt = inside(job_timeout_s=DEADLINE_S), "in time"
    model.rules(of_worker(prompt, words.paying(4), {"text": "Report.", "gate": "report"}))
    shown = words.in_status(house, words.job(house, "s", "parker", prompt)["id"], "input_required")
    house.pass_time(DEADLINE_S - 60)
    house.say("s", "approve", task_id=shown["task_id"])
    model.held_at("report")
    house.pass_time(120)
    model.open("report")
    assert words.in_status(house, shown["id"], "completed", "failed")["status"] == "completed"
    assert trial.diary() == ["paid 4"]
    house.wait(lambda: house.job(shown["id"])["notified"])


@pytest.mark.parametrize("kind", ["question", "approval"])
def test_a_chat_turn_waits_as_long_as_its_user_does(
    inside: Callable[..., Inside], model: ScriptedModel, kind: str
) -> None:
    house = inside(turn_timeout_s=60)
    model.rules([words.asking() if kind == "question" else words.paying(), words.ending()])
    task = words.asked(house)
    house.pass_time(80_000)
    ended = words.answered(house, task, "approve")
    assert ended["status"]["state"] == COMPLETED
