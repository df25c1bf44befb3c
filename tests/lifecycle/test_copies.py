"""A copy stands on its own: new ids, the same words and results, and nothing of what was still going on."""

import json
from typing import Any

import pytest

from tests.a2a import wire
from tests.cases.stories import background
from tests.lifecycle.looking import cleaned, rows
from tests.push.hooks import hook, inline
from tests.support.receiver import Receiver
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def tidy(server: Server, session: str) -> Any:
    yield
    for one in server.get("/api/sessions")["sessions"]:
        server.http.delete(f"/api/sessions/{one['id']}")
    cleaned(server)


def copied(server: Server, session: str, **body: Any) -> str:
    answer = server.http.post(f"/api/sessions/{session}/copy", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def shape(server: Server, session: str) -> list[Json]:
    """A log without what must differ between a session and its copy."""
    return [
        {name: message[name] for name in ("role", "kind", "text", "state", "reason", "detail", "created_at", "job_ids")}
        for message in server.messages(session)
    ]


def ids_in(server: Server, session: str) -> set[str]:
    return {message["task_id"] for message in server.messages(session)}


def test_a_copy_has_words_results_and_memory_and_outlives_its_source(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """F162: with the source erased its tasks are the copy's own, and its model remembers."""
    model.rules([Rule(last_user=word, text=f"You said {word}."), Rule(last_user="^break", status=400, text="broken")])
    server.ask(session, f"Remember {word}.")
    server.ended(server.say(session, "break it"))
    sent = {"message": wire.message("an echo", contextId=session)}
    echoed = wire.result(wire.post(server, "SendMessage", sent))["task"]
    other = copied(server, session)
    assert shape(server, other) == shape(server, session)
    assert not ids_in(server, other) & ids_in(server, session)
    assert server.get(f"/api/sessions/{other}")["title"] == f"Remember {word}."
    of_copy = [message["task_id"] for message in server.messages(other)]
    before = [server.task(one) for one in of_copy]
    assert server.http.delete(f"/api/sessions/{session}").status_code == 202
    cleaned(server)
    assert [server.task(one) for one in of_copy] == before
    for task in before:
        assert task["contextId"] == other
        assert {message["contextId"] for message in task["history"]} == {other}
        assert {message.get("taskId") for message in task["history"]} <= {task["id"], None}
        assert all(artifact["artifactId"].startswith(task["id"]) for artifact in task["artifacts"])
    last = before[-1]
    assert last["artifacts"][0]["parts"] == echoed["artifacts"][0]["parts"]
    assert last["status"]["timestamp"] == echoed["status"]["timestamp"]
    server.ask(other, "What was it?")
    assert f"You said {word}." in model.requests()[-1].text
    text = json.dumps([before, server.messages(other)])
    assert session not in text and echoed["id"] not in text


def test_what_runs_waits_or_is_called_is_not_copied(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """F162: no job, no webhook, no turn that has not ended; and nothing of the source is disturbed."""
    with Receiver() as receiver:
        message = wire.message(f"say {word}", contextId=session)
        sent = {"message": message, "configuration": inline(hook(receiver))}
        task = wire.result(wire.post(server, "SendMessage", sent))["task"]["id"]
        receiver.wait(4)
        server.ended(task)
        model.rules(
            [
                Rule(last_user="^go", tool_offered="task", tool_calls=[background("one", "two")]),
                Rule(last_tool=r"\(sent out\)", text="Sent out."),
                Rule(last_user="^one$", text="late", gate="late"),
                Rule(last_user="^think", text="late", gate="late"),
                Rule(last_user="<task-noti", text="Briefed."),
            ]
        )
        server.ask(session, "go")
        thinking = server.say(session, "think")
        server.wait(lambda: sum(asked.gate == "late" for asked in model.requests()) == 2)
        queued = server.say(session, "and then")
        calls = rows(server.data, "select count(*) as n from runs where kind = 'push'")
        assert server.get(f"/api/sessions/{session}/export")["left_out"] == {"turns": 2}
        answer = server.post(f"/api/sessions/{session}/copy", id=f"{session}-copy")
        other = answer["id"]
        assert other == f"{session}-copy" and answer["left_out"] == {"turns": 2}
        assert [m["text"] for m in server.messages(other)] == [f"say {word}", f"say {word}", "go", "Sent out."]
        assert server.jobs(other) == [] and server.get(f"/api/sessions/{other}")["running"] == 0
        assert {one["task_id"] for one in server.get("/api/webhooks")["webhooks"]} == {task}
        assert rows(server.data, "select count(*) as n from runs where kind = 'push'") == calls
        model.open("late")
        for one in (thinking, queued):
            server.ended(one)
        for job in server.jobs(session):
            server.wait(lambda job=job: server.job(job["id"])["notified"])
        assert len(server.messages(other)) == 4
        assert len(receiver.calls) == 4


def test_a_copy_is_made_whole_or_not_at_all(server: Server, model: ScriptedModel, session: str, word: str) -> None:
    server.ask(session, word)
    server.ask(f"{session}-taken", "mine")
    before = rows(server.data, "select count(*) as n from tasks")

    def refused(of: str, body: Json) -> tuple[int, str]:
        answer = server.http.post(f"/api/sessions/{of}/copy", json=body)
        return answer.status_code, answer.json()["error"]["code"]

    assert refused(session, {"id": f"{session}-taken"}) == (409, "CONFLICT")
    assert refused(session, {"id": session}) == (409, "CONFLICT")
    assert refused("never-there", {}) == (404, "NOT_FOUND")
    assert refused(session, {"id": "background:bg-1"}) == (400, "INVALID")
    assert refused(session, {"id": 7}) == (400, "INVALID")
    assert rows(server.data, "select count(*) as n from tasks") == before
    assert [m["text"] for m in server.messages(f"{session}-taken")] == ["mine", "ok"]


def test_a_jobs_own_session_is_neither_copied_nor_exported(server: Server, model: ScriptedModel, session: str) -> None:
    model.rules([Rule(last_user="^look", text="Seen."), Rule(last_user="<task-noti", text="Briefed.")])
    server.post("/api/sessions", id=session)
    job = server.spawn(session, "look")["id"]
    server.wait(lambda: server.job(job)["notified"])
    assert server.http.post(f"/api/sessions/background:{job}/copy", json={}).status_code == 409
    assert server.http.get(f"/api/sessions/background:{job}/export").status_code == 409


def test_a_copy_of_a_copy_and_of_nothing(server: Server, model: ScriptedModel, session: str) -> None:
    server.ask(session, "hello")
    third = copied(server, copied(server, session))
    assert shape(server, third) == shape(server, session)
    server.post("/api/sessions", id=f"{session}-empty")
    assert server.messages(copied(server, f"{session}-empty")) == []


def test_a_briefing_is_copied_with_what_it_told(server: Server, model: ScriptedModel, session: str, word: str) -> None:
    """Notifications are part of the history; that their job is the source's changes nothing in them."""
    model.rules([Rule(last_user="^look", text=f"Found {word}."), Rule(last_user="<task-noti", text="Briefed.")])
    server.post("/api/sessions", id=session)
    job = server.spawn(session, "look")["id"]
    server.wait(lambda: server.job(job)["notified"])
    other = copied(server, session)
    assert shape(server, other) == shape(server, session)
    server.http.delete(f"/api/sessions/{session}")
    model.rules([])
    server.ask(other, "What was found?")
    assert f"Found {word}." in model.requests()[-1].text
