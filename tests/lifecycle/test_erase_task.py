"""One turn is erased: queued, at work, parked or ended. What it told of stays told; what it held is told by another."""

from typing import Any

import pytest

from tests.a2a import wire
from tests.lifecycle.looking import bytes_left, cells, cleaned, places, rows
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server


def erase(server: Server, session: str, task: str) -> None:
    answer = server.http.delete(f"/api/sessions/{session}/tasks/{task}")
    assert (answer.status_code, answer.json()) == (202, {"erased": task})


def gone(server: Server, session: str, task: str, word: str, sealed: list[bytes]) -> None:
    """Nothing of the turn is left: not to ask for, not in the log, not in a file."""
    assert wire.told(wire.post(server, "GetTask", {"id": task}))[1] == -32001
    assert task not in [message["task_id"] for message in server.messages(session)]
    cleaned(server)
    assert places(server.data, word) == [] == bytes_left(server.data, sealed)
    assert rows(server.data, "select 1 from receipts where task_id = :task", task=task) == []


@pytest.fixture(autouse=True)
def tidy(server: Server, session: str) -> Any:
    yield
    if server.http.delete(f"/api/sessions/{session}").status_code == 202:
        cleaned(server)


def test_an_ended_turn_is_gone_from_log_history_and_files(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """F158: neither people nor the model of a later turn meet it again."""
    model.rules([Rule(last_user=word, text=f"You said {word}.")])
    server.ask(session, "First.")
    task = server.say(session, f"Remember {word}.")
    server.ended(task)
    sealed = cells(server.data, word)
    erase(server, session, task)
    gone(server, session, task, word, sealed)
    server.ask(session, "What did I say?")
    assert word not in model.requests()[-1].text and "First." in model.requests()[-1].text
    assert server.http.delete(f"/api/sessions/{session}/tasks/{task}").status_code == 404


def test_the_title_is_not_what_an_erased_turn_said(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """It is made of what was said first of what is left; of nothing, where nothing is."""
    first = server.say(session, f"Remember {word}.")
    server.ended(first)
    second = server.say(session, "Hello again.")
    server.ended(second)
    erase(server, session, first)
    assert server.get(f"/api/sessions/{session}")["title"] == "Hello again."
    erase(server, session, second)
    assert server.get(f"/api/sessions/{session}")["title"] == ""
    server.ask(session, "Anew.")
    assert server.get(f"/api/sessions/{session}")["title"] == "Anew."


def test_a_turn_at_work_is_stopped_and_the_next_has_its_place(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """F158: its late answer is nothing."""
    model.rules([Rule(last_user=word, text=f"You said {word}.", gate="late")])
    task = server.say(session, f"Remember {word}.")
    held = model.held_at("late")
    following = server.say(session, "Next.")
    sealed = cells(server.data, word)
    erase(server, session, task)
    server.wait(lambda: held.gone_at)
    model.open("late")
    assert server.ended(following)["status"]["state"] == "TASK_STATE_COMPLETED"
    gone(server, session, task, word, sealed)


def test_a_turn_that_waits_its_turn_never_runs(server: Server, model: ScriptedModel, session: str, word: str) -> None:
    model.rules([Rule(last_user="^First", text="Late.", gate="late")])
    first = server.say(session, "First.")
    model.held_at("late")
    queued = server.say(session, f"Remember {word}.")
    sealed = cells(server.data, word)
    erase(server, session, queued)
    model.open("late")
    server.ended(first)
    gone(server, session, queued, word, sealed)
    assert not any(word in asked.text for asked in model.requests())


def test_a_parked_turn_asks_nobody_any_more(server: Server, model: ScriptedModel, session: str, word: str) -> None:
    asks = {"name": "ask_user", "arguments": {"question": f"Which {word}?"}}
    model.rules([Rule(last_user=f"^ask {word}$", tool_offered="ask_user", tool_calls=[asks])])
    task = server.say(session, f"ask {word}", skill="asking")
    server.wait(lambda: server.task(task)["status"]["state"] == "TASK_STATE_INPUT_REQUIRED")
    sealed = cells(server.data, word)
    erase(server, session, task)
    gone(server, session, task, word, sealed)
    answer = server.http.post(f"/api/sessions/{session}/messages", json={"text": "blue", "task_id": task})
    assert answer.status_code == 404
    assert server.ask(session, "And now?") == "ok"


def test_the_id_of_an_erased_message_is_taken_anew(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """F158: its receipt is gone as well."""
    first = server.say(session, word, message_id=f"m-{word}")
    server.ended(first)
    assert server.say(session, word, message_id=f"m-{word}") == first
    erase(server, session, first)
    second = server.say(session, "something else", message_id=f"m-{word}")
    assert second != first
    server.ended(second)


def test_what_an_erased_turn_has_told_stays_told(server: Server, model: ScriptedModel, session: str, word: str) -> None:
    model.rules([Rule(last_user=f"^{word}$", text="A report."), Rule(last_user="<task-noti", text="Briefed.")])
    server.post("/api/sessions", id=session)
    job = server.spawn(session, word, "a job")
    server.wait(lambda: server.job(job["id"])["notified"])
    task = server.job(job["id"])["notified_in"]
    at = server.job(job["id"])["notified_at"]
    erase(server, session, task)
    cleaned(server)
    heard = len(model.requests())
    assert server.ask(session, "Any news?") == "ok"
    assert "<task-notification>" not in model.requests()[-1].text and len(model.requests()) == heard + 1
    shown = server.job(job["id"])
    assert (shown["notified"], shown["notified_at"], shown["notified_in"]) == (True, at, None)
    assert shown["report"] == "A report."


def test_what_an_erased_briefing_was_to_tell_is_told_by_the_next_turn(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    model.rules(
        [
            Rule(last_user=f"^{word}$", text="A report."),
            Rule(last_user="<task-noti", text="Briefed.", gate="late", times=1),
        ]
    )
    server.post("/api/sessions", id=session)
    job = server.spawn(session, word, "a job")
    held = model.held_at("late")
    (task,) = [message["task_id"] for message in server.messages(session) if message["kind"] == "nudge"]
    erase(server, session, task)
    server.wait(lambda: held.gone_at)
    assert server.job(job["id"])["delivery"]["state"] == "pending"
    server.ask(session, "Any news?")
    assert "A report." in model.requests()[-1].text
    assert server.job(job["id"])["notified"]


def test_jobs_that_an_erased_turn_sent_out_go_on(server: Server, model: ScriptedModel, session: str, word: str) -> None:
    """They are the session's; each comes back as it would have."""
    sends = {"name": "task", "arguments": {"description": "a job", "prompt": word, "subagent_type": "general"}}
    sends["arguments"]["run_in_background"] = True
    model.rules(
        [
            Rule(last_user="^Go", tool_offered="task", tool_calls=[sends]),
            Rule(last_tool=r"\(sent out\)", text="Sent out.", gate="late"),
            Rule(last_user=f"^{word}$", text="A report."),
            Rule(last_user="<task-noti", text="Briefed."),
        ]
    )
    task = server.say(session, "Go.")
    model.held_at("late")
    erase(server, session, task)
    (job,) = server.jobs(session)
    server.wait(lambda: server.job(job["id"])["notified"])
    assert [message["text"] for message in server.messages(session) if message["role"] == "agent"] == ["Briefed."]


def test_only_a_turn_of_this_very_session_is_erased(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """What is not there, what stands elsewhere and what is a job's own is not."""
    model.rules([Rule(last_user=f"^{word}$", text="A report.")])
    server.post("/api/sessions", id=session)
    job = server.spawn(session, word, "a job")
    server.wait(lambda: server.job(job["id"])["notified"])
    own = server.job(job["id"])["task_id"]
    elsewhere = server.say(f"{session}-other", "Hello.")
    server.ended(elsewhere)

    def status(of: str, task: str) -> int:
        return server.http.delete(f"/api/sessions/{of}/tasks/{task}").status_code

    assert [status(session, one) for one in (own, elsewhere, "no-such-task")] == [404, 404, 404]
    assert status("never-there", elsewhere) == 404
    assert status(f"background:{job['id']}", own) == 409
    assert server.task(elsewhere)["status"]["state"] == "TASK_STATE_COMPLETED"
    server.http.delete(f"/api/sessions/{session}-other")
