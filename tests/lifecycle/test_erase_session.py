"""A session is erased, whatever goes on in it: hidden at once, gone from every file soon, and nothing of it comes late."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from tests.a2a import wire
from tests.cases.stories import background, job
from tests.lifecycle.looking import bytes_left, cells, cleaned, last_errors, places, rows
from tests.push.hooks import hook, inline
from tests.support.receiver import Answer, Receiver
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server

Scene = Callable[[Server, ScriptedModel, str, str], None]
OF_SESSION = ("tasks", "messages", "events", "jobs", "batches", "deliveries")


def erase(server: Server, session: str) -> None:
    answer = server.http.delete(f"/api/sessions/{session}")
    assert (answer.status_code, answer.json()) == (202, {"erased": session})


def answered(server: Server, model: ScriptedModel, session: str, word: str) -> None:
    """A chat of one turn: message and answer."""
    model.rules([Rule(last_user=word, text=f"You said {word}.")])
    server.ask(session, f"Remember {word}.")


def at_work(server: Server, model: ScriptedModel, session: str, word: str) -> None:
    """A turn waits for its model, and a second one behind it."""
    model.rules([Rule(last_user=word, text=f"You said {word}.", gate="late")])
    server.say(session, f"Remember {word}.")
    model.held_at("late")
    server.say(session, f"And {word} once more.")


def jobs_at_work(server: Server, model: ScriptedModel, session: str, word: str) -> None:
    """One job waits for its model, one is queued behind it."""
    model.rules(
        [
            Rule(last_user=f"^go {word}$", tool_offered="task", tool_calls=[background(f"{word} 1", f"{word} 2")]),
            Rule(last_tool=r"\(sent out\)", text="Sent out."),
            Rule(last_user=f"^{word} 1$", text=f"Report {word}.", gate="late"),
        ]
    )
    server.ask(session, f"go {word}")
    model.held_at("late")


def reported(server: Server, model: ScriptedModel, session: str, word: str) -> None:
    """A job is back, indexed and briefed."""
    model.rules(
        [
            Rule(last_user=f"^{word}$", text=f"Report {word}. " * 40),
            Rule(last_user="<task-notification>", tool_offered="task", text=f"Briefed: {word}."),
        ]
    )
    answered_in(server, session)
    sent = server.spawn(session, word, f"about {word}")
    server.wait(lambda: server.job(sent["id"])["notified"])


def being_briefed(server: Server, model: ScriptedModel, session: str, word: str) -> None:
    """A job is back and indexed, and its briefing waits for its model."""
    model.rules(
        [
            Rule(last_user=f"^{word}$", text=f"Report {word}."),
            Rule(last_user="<task-notification>", tool_offered="task", text=f"Briefed: {word}.", gate="late"),
        ]
    )
    answered_in(server, session)
    server.spawn(session, word, f"about {word}")
    model.held_at("late")


def parked(server: Server, model: ScriptedModel, session: str, word: str) -> None:
    """A turn has asked its user, and a further message waits behind it in the lane."""
    asks = {"name": "ask_user", "arguments": {"question": f"Which {word}?"}}
    model.rules([Rule(last_user=f"^ask {word}$", tool_offered="ask_user", tool_calls=[asks])])
    task = server.say(session, f"ask {word}", skill="asking")
    server.wait(lambda: server.task(task)["status"]["state"] == "TASK_STATE_INPUT_REQUIRED")
    server.say(session, f"meanwhile {word}")


def failed(server: Server, model: ScriptedModel, session: str, word: str) -> None:
    """A turn's model has failed with an error that quotes what was said."""
    model.rules([Rule(last_user=word, status=400, text=f"cannot read {word}")])
    server.ended(server.say(session, f"Remember {word}."))


def answered_in(server: Server, session: str) -> None:
    """The session is there."""
    server.post("/api/sessions", id=session)


SCENES = [answered, at_work, jobs_at_work, reported, being_briefed, parked, failed]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_an_erased_session_is_hidden_at_once_and_soon_in_no_file(
    server: Server, model: ScriptedModel, session: str, word: str, scene: Scene
) -> None:
    """F158, F159, S08 (c): no message, answer, prompt, description, title or report is left, and nothing comes late."""
    scene(server, model, session, word)
    told = [one["id"] for one in server.jobs(session)]
    turns = [row["id"] for row in rows(server.data, "select id from tasks")]
    sealed = cells(server.data, word)
    assert sealed
    erase(server, session)
    assert server.http.get(f"/api/sessions/{session}").status_code == 404
    assert session not in str(server.get("/api/sessions"))
    assert all(server.http.get(f"/api/background/{job_id}").status_code == 404 for job_id in told)
    assert all(wire.told(wire.post(server, "GetTask", {"id": one}))[1] == -32001 for one in turns)
    for asked in model.requests():  # whoever worked has hung up: what is answered now is heard by nobody
        server.wait(lambda asked=asked: asked.answered_at or asked.gone_at)
    model.open("late")
    cleaned(server)
    heard = len(model.requests())
    assert places(server.data, word) == []
    assert bytes_left(server.data, sealed) == []
    assert server.get("/api/knowledge/search", q=word)["hits"] == []
    of_tables = " + ".join(f"(select count(*) from {table})" for table in OF_SESSION)
    left = "select count(*) as n from runs where kind not in ('erase', 'purge', 'remember')"
    assert rows(server.data, f"select {of_tables} as n") == rows(server.data, left) == [{"n": 0}]
    assert len(model.requests()) == heard
    assert "Traceback" not in server.log()


def test_a_session_made_anew_under_the_same_id_knows_nothing(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """S27 (a): the old job's worker stops, and neither its report nor a word of before enters the new session."""
    jobs_at_work(server, model, session, word)
    held = model.held_at("late")
    erase(server, session)
    answer = server.ask(session, "Who are you?")
    server.wait(lambda: held.gone_at)
    model.open("late")
    cleaned(server)
    assert answer == "ok" and server.jobs(session) == []
    assert [message["text"] for message in server.messages(session)] == ["Who are you?", "ok"]
    assert word not in model.requests()[-1].text
    erase(server, session)
    cleaned(server)


def test_what_is_not_there_what_is_reserved_and_what_was_erased_answer_alike(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """F159: nobody learns whether there was a session."""
    answered(server, model, session, word)
    erase(server, session)
    answers = [server.http.delete(f"/api/sessions/{one}") for one in (session, "never-there", "%00", "a b", "x" * 300)]
    assert {(answer.status_code, answer.text) for answer in answers} == {
        (404, answers[0].text),
    }


def test_a_jobs_own_session_goes_with_the_one_that_sent_it_out(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    reported(server, model, session, word)
    (sent,) = server.jobs(session)
    assert server.http.delete(f"/api/sessions/background:{sent['id']}").status_code == 409
    assert server.http.get(f"/api/sessions/background:{sent['id']}").status_code == 200
    erase(server, session)
    assert server.http.get(f"/api/sessions/background:{sent['id']}").status_code == 404
    cleaned(server)


def test_a_webhook_that_waits_is_not_called_any_more(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """F158: one call is under way, its successors wait."""
    gate = threading.Event()
    with Receiver() as receiver:
        receiver.answers = [Answer(gate=gate)]
        message = wire.message(f"say {word}") | {"contextId": session}
        sent = {"message": message, "configuration": inline(hook(receiver, token=f"token-{word}"))}
        task = wire.result(wire.post(server, "SendMessage", sent))["task"]["id"]
        receiver.wait(1)
        server.ended(task)
        erase(server, session)
        gate.set()
        cleaned(server)
        assert places(server.data, word) == []
        assert len(receiver.calls) == 1


def test_what_stood_among_others_is_gone_from_between_them(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """Rows of two sessions share pages; where one was, no byte of it is left, and the other is whole."""
    for number in range(12):
        server.say(session, f"{word} {number} " + "x" * 40 * number, skill="echo")
        server.ask(f"{session}-other", f"kept {number}", skill="echo")
    server.wait(lambda: server.get(f"/api/sessions/{session}")["running"] == 0)
    sealed = cells(server.data, word)
    assert len(sealed) > 24
    erase(server, session)
    cleaned(server)
    assert bytes_left(server.data, sealed) == []
    assert [message["text"] for message in server.messages(f"{session}-other")[::2]] == [f"kept {n}" for n in range(12)]
    erase(server, f"{session}-other")
    cleaned(server)


def test_an_open_reader_only_delays_the_cleaning(server: Server, model: ScriptedModel, session: str, word: str) -> None:
    """RULING 8: another process reads both files all the time; everybody else goes on, and in the end the bytes are gone."""
    reported(server, model, session, word)
    sealed = cells(server.data, word)
    with (
        closing(sqlite3.connect(server.data / "outrider.db")) as registry,
        closing(sqlite3.connect(server.data / "knowledge.db")) as index,
    ):
        for reader in (registry, index):
            reader.execute("begin")
            reader.execute("select count(*) from sqlite_master").fetchall()
        erase(server, session)
        server.wait(lambda: "a reader is in the way" in last_errors(server.data, "erase"))
        assert server.http.get(f"/api/sessions/{session}").status_code == 404
        assert server.get("/api/knowledge/search", q=word)["hits"] == []
        assert server.ask(f"{session}-other", "Is anybody there?") == "ok"
        for reader in (registry, index):
            reader.rollback()
    cleaned(server)
    assert places(server.data, word) == [] == bytes_left(server.data, sealed)
    erase(server, f"{session}-other")
    cleaned(server)


def test_whoever_waits_for_a_turn_that_is_erased_is_told_so_at_once(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """A blocking send does not wait for its deadline."""
    model.rules([Rule(last_user=word, gate="late")])
    found: list[Any] = []

    def send() -> None:
        found.append(wire.told(wire.post(server, "SendMessage", {"message": wire.said(word, contextId=session)})))

    waiting = threading.Thread(target=send)
    waiting.start()
    model.held_at("late")
    erase(server, session)
    waiting.join(5)
    assert [code for _, code, _ in found] == [-32001]
    cleaned(server)


def test_sessions_that_are_erased_again_and_again_leave_nothing(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """F158: many erasures at every moment of a turn and of its job."""
    model.rules(
        [
            Rule(last_user=f"^go {word}", tool_offered="task", tool_calls=[_sends(word)]),
            Rule(last_tool=r"\(sent out\)", text=f"Sent {word}."),
            Rule(last_user="<task-notification>", text=f"Briefed {word}."),
            Rule(anywhere=word, text=f"Report {word}."),
        ]
    )
    for number in range(24):
        server.say(f"{session}-{number}", f"go {word} {number}")
        if number >= 8:
            erase(server, f"{session}-{number - 8}")
    for number in range(16, 24):
        erase(server, f"{session}-{number}")
    cleaned(server)
    server.wait(lambda: rows(server.data, "select count(*) as n from runs where state = 'running'")[0]["n"] == 0)
    assert places(server.data, word) == []
    assert rows(server.data, "select count(*) as n from tasks") == [{"n": 0}]
    assert "Traceback" not in server.log()


def _sends(word: str) -> dict[str, Any]:
    return {"name": "task", "arguments": {**job(f"work {word}"), "run_in_background": True}}
