"""A further question to the worker of a job that has ended: it goes on from what it knows, and is told like any other end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.cases.stories import (
    blocks_in,
    briefing,
    briefings,
    calling,
    news_in,
    notifications,
    when_told,
    worker,
    worker_requests,
)
from tests.support.rules import Rule
from tests.support.scripted import Asked, ScriptedModel
from tests.support.server import ROOT, Server

FOUND = "Hot journals are rolled back. The needle is zebra-31."


@pytest.fixture(scope="module")
def server(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("further") / "data", env=shared_model.env) as server:
        yield server


def further(prompt: str, question: str, text: str, **how: Any) -> list[Rule]:
    """A worker that searches and reports on its prompt, and answers this question afterwards."""
    return [
        Rule(last_user=f"^{prompt}$", tool_calls=[calling("memory_recall", query="journal")], times=1),
        Rule(last_tool="(?i)nothing found|reference", anywhere=f"(?m)^{prompt}$", text=FOUND, times=1),
        Rule(last_user=f"^{question}$", text=text, **how),
        briefing(),
    ]


def done(server: Server, session: str, prompt: str) -> str:
    """A job that has ended and was told; its id."""
    server.ask(session, "hello")
    job = server.spawn(session, prompt, prompt.upper())["id"]
    when_told(server, job)
    return job


def ask(server: Server, job: str, question: str) -> httpx.Response:
    return server.http.post(f"/api/background/{job}/ask", json={"prompt": question})


def told_again(server: Server, job: str, attempts: int) -> dict[str, Any]:
    server.wait(lambda: server.job(job)["attempts"] == attempts and server.job(job)["notified"])
    return server.job(job)


def assert_told(server: Server, session: str, job: str, ends: int) -> None:
    """Each end of the job's was told by one completed turn, and the last one by that which the job names."""
    told = [message["task_id"] for message in notifications(server, session, job) if message["state"] == "completed"]
    assert len(set(told)) == len(told) == ends and told[-1] == server.job(job)["notified_in"]


def asked_of(model: ScriptedModel, question: str) -> list[Asked]:
    return [asked for asked in model.requests() if asked.last_user == question and "task" not in asked.tools]


def test_a_follow_up_goes_on_from_what_the_worker_knows_and_is_told(server: Server, model: ScriptedModel) -> None:
    model.rules(further("fu work", "fu which", "It is zebra-31."))
    job = done(server, "fu", "fu work")
    asked = ask(server, job, "fu which")
    assert asked.status_code == 202, asked.text
    shown = asked.json()
    assert (shown["id"], shown["status"], shown["attempts"], shown["follow_up"]) == (job, "queued", 2, "fu which")
    shown = told_again(server, job, 2)
    assert (shown["status"], shown["report"], shown["prompt"]) == ("completed", "It is zebra-31.", "fu work")
    (request,) = asked_of(model, "fu which")
    said = [message["role"] for message in request.messages]
    assert said == ["system", "user", "assistant", "tool", "assistant", "user"] and FOUND in request.text
    assert "asked further" in request.messages[0]["content"]
    assert shown["batch_id"] == f"{job}:2" and shown["usage"]["requests"] == 3
    assert_told(server, "fu", job, 2)
    *_, last = notifications(server, "fu", job)
    assert blocks_in(last["text"])[0]["follow-up"] == "fu which"
    assert len(notifications(server, "fu", job)) == 2 == len(briefings(server, "fu"))
    usage = server.get("/api/sessions/fu")["usage"]["causes"]
    assert usage["job"]["requests"] == 2 and usage["follow_up"]["requests"] == 1


def test_F107_its_answer_takes_the_place_of_the_report_in_the_index(server: Server, model: ScriptedModel) -> None:
    model.rules(further("f107 work", "f107 which", "An answer with quagga-88."))
    job = done(server, "f107", "f107 work")

    def hits(query: str) -> list[str]:
        return [hit["job_id"] for hit in server.get("/api/knowledge/search", q=query, session="f107")["hits"]]

    assert hits("zebra-31") == [job]
    ask(server, job, "f107 which")
    told_again(server, job, 2)
    assert (hits("zebra-31"), hits("quagga-88")) == ([], [job])


def test_a_second_follow_up_knows_the_first_and_a_retry_asks_again(server: Server, model: ScriptedModel) -> None:
    model.rules(
        [
            Rule(last_user="^and third$", status=400, text="no", times=1),
            Rule(last_user="^and third$", text="Third answer."),
            *further("chain work", "and second", "Second answer."),
        ]
    )
    job = done(server, "chain", "chain work")
    ask(server, job, "and second")
    told_again(server, job, 2)
    ask(server, job, "and third")
    assert told_again(server, job, 3)["error"]["reason"] == "MODEL_FAILED"
    server.post(f"/api/background/{job}/retry")
    assert told_again(server, job, 4)["report"] == "Third answer."
    for request in asked_of(model, "and third"):
        users = [message["content"] for message in request.messages if message["role"] == "user"]
        assert users == ["chain work", "and second", "and third"]
    assert len(worker_requests(model, "chain work")) == 2 + 1 + 2


def test_the_worker_of_a_failed_job_knows_how_far_it_came(server: Server, model: ScriptedModel) -> None:
    search = calling("memory_recall", query="it")
    model.rules(
        [
            Rule(last_user="^failed work$", text="The first part.", tool_calls=[search], times=1),
            Rule(
                last_tool="(?i)nothing found|reference", anywhere="(?m)^failed work$", text="…", finish_reason="length"
            ),
            Rule(last_user="^what was first$", text="The first part it was."),
            briefing(),
        ]
    )
    job = done(server, "failed", "failed work")
    assert server.job(job)["error"]["reason"] == "OUTPUT_LIMIT"
    ask(server, job, "what was first")
    assert told_again(server, job, 2)["status"] == "completed"
    (request,) = asked_of(model, "what was first")
    assert "The first part." in request.text and "This attempt failed" in request.text


def test_it_is_asked_from_the_terminal_too(server: Server, model: ScriptedModel) -> None:
    model.rules(further("cli work", "cli which", "From the terminal."))
    job = done(server, "cli", "cli work")
    env = {"PATH": os.environ["PATH"], "OUTRIDER_URL": server.url}
    command = [sys.executable, "-m", "web.cli", "ask", job, "cli which"]
    asked = subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, text=True, timeout=30)
    assert job in asked.stdout and f"outrider job {job} --report" in asked.stderr
    assert told_again(server, job, 2)["report"] == "From the terminal."


# -- what is refused


@pytest.mark.parametrize(
    ("body", "field"),
    [({}, "prompt"), ({"prompt": " "}, "prompt"), ({"prompt": 1}, "prompt"), ({"prompt": "x", "y": 1}, "y")],
)
def test_what_is_no_question_is_named(server: Server, model: ScriptedModel, body: dict[str, Any], field: str) -> None:
    model.rules([briefing()])
    job = done(server, "odd", f"odd {field} {len(body)}")
    answer = server.http.post(f"/api/background/{job}/ask", json=body)
    assert answer.status_code == 400 and answer.json()["error"]["details"]["field"] == field
    assert server.job(job)["attempts"] == 1


def refused(answer: httpx.Response) -> str:
    assert answer.status_code == 409, answer.text
    return answer.json()["error"]["code"]


def test_who_is_at_work_is_not_asked_and_who_knows_nothing_any_more_neither(
    server: Server, model: ScriptedModel
) -> None:
    model.rules([worker("refused work", gate="work"), worker("canceled work", gate="never"), briefing()])
    server.ask("refused", "hello")
    job, canceled = (server.spawn("refused", prompt)["id"] for prompt in ("refused work", "canceled work"))
    server.wait(lambda: server.job(canceled)["status"] == "running")
    server.post(f"/api/background/{canceled}/cancel")
    assert refused(ask(server, job, "Well?")) == "CONFLICT"
    assert refused(ask(server, canceled, "Well?")) == "CONTEXT_GONE"
    model.open("work")
    when_told(server, job)
    assert server.http.delete(f"/api/background/{job}/report").status_code == 202
    assert refused(ask(server, job, "Well?")) == "CONTEXT_GONE"
    assert server.http.post("/api/background/bg-000000000000/ask", json={"prompt": "x"}).status_code == 404


# -- fences and crashes


def test_S60_the_late_end_of_an_attempt_changes_nothing_of_a_follow_up(
    shared_model: ScriptedModel, model: ScriptedModel, processes: list[Any], tmp_path: Any
) -> None:
    """Killed while the question is worked on: it goes on with what it knew, and only its end is told."""
    server = Server(tmp_path / "data", env=shared_model.env | {"OUTRIDER_LEASE_S": "0.5"})
    processes.append(server)
    server.start()
    model.rules(further("s60 work", "s60 which", "After all: zebra-31.", gate="late"))
    job = done(server, "s60", "s60 work")
    ask(server, job, "s60 which")
    model.held_at("late")
    server.restart()
    model.wait_for(lambda asked: len([a for a in asked if a.last_user == "s60 which"]) == 2)
    model.open("late")
    shown = told_again(server, job, 2)
    assert shown["report"] == "After all: zebra-31." and shown["attempts"] == 2
    assert all(FOUND in request.text for request in asked_of(model, "s60 which"))
    assert_told(server, "s60", job, 2)


# -- by a model


def test_a_model_asks_the_workers_it_was_briefed_on_and_is_briefed_once(server: Server, model: ScriptedModel) -> None:
    """In the very turn that tells it of their ends; both answers come back as one briefing."""
    first, second = "tool first", "tool second"
    question = "(?m)^tool which$"
    asks = [calling("ask_worker", job_id=job, question="tool which") for job in ("{1}", "{2}")]
    both = r"(?s)<job-id>(bg-[0-9a-f]{12})</job-id>.*<job-id>(bg-[0-9a-f]{12})</job-id>.*tool (?:first|second)"
    model.rules(
        [
            Rule(last_user=question, text="Asked and answered."),
            worker(first),
            worker(second),
            Rule(last_user=both, tool_offered="task", tool_calls=asks, times=1),
            Rule(last_tool="is asked", text="I have asked them."),
            briefing("Now I know."),
        ]
    )
    server.ask("tool", "hello")
    jobs = [{"prompt": prompt, "description": prompt} for prompt in (first, second)]
    ids = [job["id"] for job in server.post("/api/background", session="tool", jobs=jobs)["jobs"]]
    for job in ids:
        assert told_again(server, job, 2)["report"] == "Asked and answered."
    shown = [server.job(job) for job in ids]
    assert len({job["batch_id"] for job in shown}) == 1 and len({job["notified_in"] for job in shown}) == 1
    assert [message["text"] for message in briefings(server, "tool")] == ["I have asked them.", "Now I know."]
    for job in ids:
        assert_told(server, "tool", job, 2)
    last = next(asked for asked in reversed(model.requests()) if "task" in asked.tools)
    assert {block["follow-up"] for block in news_in(last)} == {"tool which"}


def test_a_model_is_told_why_nobody_is_asked(server: Server, model: ScriptedModel) -> None:
    model.rules(
        [
            worker("busy work", gate="work"),
            Rule(last_user="^ask (bg-.*)$", tool_calls=[calling("ask_worker", job_id="{1}", question="Well?")]),
            Rule(last_tool="^(.*)$", text="{1}"),
            briefing(),
        ]
    )
    server.ask("busy", "hello")
    job = server.spawn("busy", "busy work")["id"]
    server.wait(lambda: server.job(job)["status"] == "running")
    assert "only the worker of an ended job is asked" in server.ask("busy", f"ask {job}")
    assert "no such job" in server.ask("busy-2", f"ask {job}")
    model.open("work")
    when_told(server, job)


def test_the_story_tells_that_it_was_asked_further(server: Server, model: ScriptedModel) -> None:
    model.rules(further("story work", "story which", "It is."))
    job = done(server, "story", "story work")
    ask(server, job, "story which")
    told_again(server, job, 2)
    told = [line["what"] for line in server.get(f"/api/background/{job}/story")["story"]]
    assert told.count("asked further") == 1 and told.count("told") == 2 and "retried" not in told
