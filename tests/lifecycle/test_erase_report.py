"""One report is erased: its text is nowhere, and nothing else is missing. Whoever looks is told that it is gone."""

from typing import Any

import pytest

from tests.access.people import outrider
from tests.lifecycle.looking import bytes_left, cells, cleaned, places
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def tidy(server: Server, session: str) -> Any:
    yield
    if server.http.delete(f"/api/sessions/{session}").status_code == 202:
        cleaned(server)


def erase(server: Server, job_id: str) -> Json:
    answer = server.http.delete(f"/api/background/{job_id}/report")
    assert answer.status_code == 202, answer.text
    return answer.json()


def briefed(server: Server, model: ScriptedModel, session: str, word: str, *more: Rule) -> str:
    """A job whose report has the word, and whose briefing has not. Its id."""
    model.rules(
        [
            *more,
            Rule(last_user=f"^look into {session}$", text=f"Found: {word}. " * 20),
            Rule(last_user="<task-notification>", tool_offered="task", text="Briefed."),
        ]
    )
    server.post("/api/sessions", id=session)
    job = server.spawn(session, f"look into {session}", "a look")
    server.wait(lambda: server.job(job["id"])["notified"])
    return job["id"]


def calling(name: str, **arguments: Any) -> list[Json]:
    return [{"name": name, "arguments": arguments}]


def test_an_erased_report_stands_nowhere_and_its_job_says_so(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """F165: text, index, notifications, events; what was asked for and how it ended stays."""
    job_id = briefed(server, model, session, word)
    before, sealed = server.job(job_id), cells(server.data, word)
    assert len(places(server.data, word)) > 4
    told = erase(server, job_id)
    after = server.job(job_id)
    cleaned(server)
    assert places(server.data, word) == [] == bytes_left(server.data, sealed)
    assert told == after
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"excerpt", "report_chars", "report", "indexed", "erased"}
    assert (after["erased"], after["report"], after["excerpt"], after["indexed"]) == (True, None, "", False)
    assert server.jobs(session)[0]["erased"] is True
    report = server.http.get(f"/api/background/{job_id}/report")
    assert (report.status_code, report.json()["error"]["code"]) == (404, "REPORT_ERASED")
    assert erase(server, job_id) == after


def test_later_turns_neither_remember_nor_recall_it(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """F165: a turn has had it as news, one has read it, one has found it; none of their words comes up again."""
    job_id = briefed(server, model, session, word)
    rules = [
        Rule(last_user="^open", tool_calls=calling("open_report", job_id=job_id)),
        Rule(last_user="^status", tool_calls=calling("background_status", job_id=job_id)),
        Rule(last_user="^recall", tool_calls=calling("memory_recall", query=word)),
        Rule(last_tool=f"Found: {word}", text="So it is."),
        Rule(last_tool=".", text="There is nothing."),
    ]
    model.rules(rules)
    for said in ("open it", "status of it", "recall it"):
        assert server.ask(session, said) == "So it is."
    erase(server, job_id)
    cleaned(server)
    model.rules(rules)
    for said in ("open it", "status of it", "recall it"):
        assert server.ask(session, said) == "There is nothing."
    assert not any(f"Found: {word}" in asked.text for asked in model.requests())
    assert "(This report was erased.)" in model.requests()[0].text
    assert "<status>erased</status>" in model.requests()[0].text
    assert places(server.data, f"Found: {word}") == []  # the word alone is what its user asked for


def test_a_turn_that_has_it_before_its_eyes_begins_anew_without_it(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """What is at work would write it down again with its end: it goes on from what is stored."""
    model.rules(
        [
            Rule(last_user=f"^look into {session}$", text=f"Found: {word}. " * 20),
            Rule(last_user="<task-notification>", tool_offered="task", text="Briefed.", gate="late"),
        ]
    )
    server.post("/api/sessions", id=session)
    job = server.spawn(session, f"look into {session}", "a look")
    held = model.held_at("late")
    assert word in held.text
    erase(server, job["id"])
    server.wait(lambda: held.gone_at)
    again = model.held_at("late")
    assert word not in again.text and "<status>erased</status>" in again.text
    model.open("late")
    server.wait(lambda: server.job(job["id"])["notified"])
    cleaned(server)
    assert places(server.data, word) == []
    assert [message["text"] for message in server.messages(session)][-1] == "Briefed."


def test_a_turn_that_took_it_up_between_its_steps_loses_it_too(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """What was folded in stands in a step of its own until the turn has ended."""
    model.rules(
        [
            Rule(last_user=f"^look into {session}$", text=f"Found: {word}. " * 20, gate="report"),
            Rule(
                last_user="^wait", tool_offered="task", tool_calls=calling("memory_recall", query="zebra"), gate="one"
            ),
            Rule(anywhere="<task-notification>", tool_offered="task", text="Briefed.", gate="late"),
        ]
    )
    task = server.say(session, "wait for it")
    model.held_at("one")
    job = server.spawn(session, f"look into {session}", "a look")
    model.open("report")
    server.wait(lambda: any(message["kind"] == "nudge" for message in server.messages(session)))
    model.open("one")
    held = model.held_at("late")
    assert word in held.text
    erase(server, job["id"])
    server.wait(lambda: held.gone_at)
    assert word not in model.held_at("late").text
    model.open("late")
    server.ended(task)
    cleaned(server)
    assert places(server.data, word) == []
    assert server.job(job["id"])["notified"]


def test_a_retry_brings_a_report_that_is_kept_and_found(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """Its prompt was not erased; what comes of it afterwards is news."""
    job_id = briefed(server, model, session, f"old{word}")
    erase(server, job_id)
    briefed_again = [Rule(last_user="^look", text=f"Found: new{word}."), Rule(last_user="<task-noti", text="Briefed.")]
    model.rules(briefed_again)
    assert "erased" not in server.post(f"/api/background/{job_id}/retry")
    server.wait(lambda: server.job(job_id)["notified"])
    cleaned(server)
    shown = server.job(job_id)
    assert (shown["report"], shown["indexed"]) == (f"Found: new{word}.", True)
    assert [hit["job_id"] for hit in server.get("/api/knowledge/search", q=f"new{word}")["hits"]] == [job_id]
    assert places(server.data, f"old{word}") == []


def test_a_partial_report_is_erased_like_any_other_and_a_retry_is_a_new_one(
    server: Server, model: ScriptedModel, session: str, word: str
) -> None:
    """F165: what comes afterwards is indexed and kept."""
    model.rules(
        [
            Rule(last_user=f"^{session}$", tool_calls=calling("memory_recall", query="zebra"), text=f"So far {word}."),
            Rule(last_tool=".", status=400, text="no more"),
            Rule(last_user="<task-notification>", tool_offered="task", text="Briefed."),
        ]
    )
    server.post("/api/sessions", id=session)
    job = server.spawn(session, session, "a look")
    server.wait(lambda: server.job(job["id"])["notified"])
    assert (server.job(job["id"])["partial"], server.job(job["id"])["report"]) == (True, f"So far {word}.")
    shown = erase(server, job["id"])
    assert (shown["status"], shown["error"]["reason"], shown["partial"]) == ("failed", "MODEL_FAILED", False)
    cleaned(server)
    assert places(server.data, word) == []
    model.rules([Rule(last_user=f"^{session}$", text=f"All of {word}."), Rule(last_user="<task-noti", text="Briefed.")])
    assert "erased" not in server.post(f"/api/background/{job['id']}/retry")
    server.wait(lambda: server.job(job["id"])["notified"])
    shown = server.job(job["id"])
    assert (shown["report"], shown["indexed"]) == (f"All of {word}.", True)
    assert [hit["job_id"] for hit in server.get("/api/knowledge/search", q=word)["hits"]] == [job["id"]]


def test_only_an_ended_jobs_report_is_erased(server: Server, model: ScriptedModel, session: str) -> None:
    model.rules([Rule(last_user=f"^{session}$", text="late", gate="late")])
    server.post("/api/sessions", id=session)
    job = server.spawn(session, session, "a look")
    model.held_at("late")
    answer = server.http.delete(f"/api/background/{job['id']}/report")
    assert (answer.status_code, answer.json()["error"]["details"]) == (409, {"status": "running"})
    assert server.http.delete("/api/background/bg-000000000000/report").status_code == 404
    model.open("late")
    server.wait(lambda: server.job(job["id"])["notified"])
    assert server.job(job["id"])["report"] == "late"


def test_the_command_line_says_that_it_is_gone(server: Server, model: ScriptedModel, session: str, word: str) -> None:
    job_id = briefed(server, model, session, word)
    erase(server, job_id)

    shown = outrider(None, "job", job_id, "--url", server.url)
    assert "report:      erased" in shown.stdout and word not in shown.stdout
    whole = outrider(None, "job", job_id, "--report", "--url", server.url)
    assert (whole.exit_code, whole.stdout) == (1, "")
    assert whole.stderr == "outrider: The report of this job was erased.\n"
