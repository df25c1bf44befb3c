"""F170: from a job's id one query tells the whole story in order; below `full` it tells no word of what was said."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.cases.stories import briefing, calling, fan, worker
from tests.support.receiver import Receiver
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from web import cli

SECRET = "the heron's nest"


def story(server: Server, job_id: str) -> dict[str, Any]:
    return server.get(f"/api/background/{job_id}/story")


def words(told: dict[str, Any]) -> list[str]:
    return [line["what"] for line in told["story"]]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def one(told: dict[str, Any], what: str) -> dict[str, Any]:
    (line,) = [line for line in told["story"] if line["what"] == what]
    return line


def test_f170_a_job_s_whole_story_in_order(server: Server, model: ScriptedModel, receiver: Receiver) -> None:
    """A turn sends it out; the provider fails once; it searches; its task's webhook fails once; its session is briefed."""
    model.rules(
        [
            *fan("look", "herons"),
            Rule(last_user="^herons$", status=503, text=f"busy with {SECRET}", times=1),
            worker("herons", gate="asked", tool_calls=[calling("memory_recall", query=SECRET)], text=""),
            Rule(last_tool="", anywhere="(?m)^herons$", text=f"A report on {SECRET}.", usage=USAGE),
            briefing(),
        ]
    )
    session = server.post("/api/sessions")["id"]
    turn = server.say(session, "look")
    model.held_at("asked", timeout=30)
    (job,) = server.jobs(session)
    receiver.answers = [500]
    hook = server.rpc("CreateTaskPushNotificationConfig", {"taskId": job["task_id"], "id": "w", "url": receiver.url})
    assert "result" in hook, hook
    model.open("asked")
    server.wait(lambda: server.job(job["id"])["notified"] and "webhook called" in words(story(server, job["id"])))
    server.wait(lambda: not story(server, job["id"])["waiting"])
    told = story(server, job["id"])
    mine = [word for word in words(told) if not word.startswith("webhook") and word not in BETWEEN]
    assert mine == [
        "spawned",
        "task submitted",
        "task working",
        "model call",
        "tool call",
        "model call",
        "task completed",
        "report handled",
        "may be told",
        "joined",
        "nudge queued",
        "briefing submitted",
        "briefing working",
        "model call",
        "briefing completed",
        "told",
    ]
    assert set(words(told)) >= BETWEEN
    assert [line["at"] for line in told["story"]] == sorted(line["at"] for line in told["story"])
    assert one(told, "spawned")["task_id"] == turn and one(told, "spawned")["batch_id"] == turn
    assert one(told, "task completed")["task_id"] == job["task_id"]
    assert one(told, "told")["task_id"] == server.job(job["id"])["notified_in"]
    assert one(told, "tool call")["tool"] == "memory_recall"
    calls = [line for line in told["story"] if line["what"] == "model call"]
    assert calls[1] | USED == calls[1] and calls[0]["calls"] == ["memory_recall"] and calls[0]["model"]
    failed = {line["kind"]: line for line in told["story"] if line["what"] == "try failed"}
    assert set(failed) == {"job", "push"} and "503" in failed["job"]["error"] and "500" in failed["push"]["error"]
    assert one(told, "joined")["counts"] == {"completed": 1}
    assert SECRET not in json.dumps({**told, "story": [line for line in told["story"] if "error" not in line]})


BETWEEN = {"dispatched", "nudge posted", "try failed"}  # a post is known to have arrived after what it has begun
USAGE = {"prompt_tokens": 70, "completion_tokens": 7}
USED = {"requests": 1, "input_tokens": 70, "output_tokens": 7}


def test_f170_the_log_tells_it_to_a_grep_by_the_job_s_id(server: Server, model: ScriptedModel) -> None:
    model.rules([briefing(), worker("owls")])
    session = server.post("/api/sessions")["id"]
    job = server.spawn(session, "owls")["id"]
    server.wait(lambda: server.job(job)["notified"])
    done = server.job(job)
    server.wait(lambda: f"has told of {job}" in server.log())
    lines = [line for line in server.log().splitlines() if job in line]
    for part in (
        "sent out from session",
        "dispatched as task",
        "begins",
        "has ended",
        "may be told",
        "nudge for",
        "has told of",
    ):
        assert any(part in line for line in lines), part
    assert any(done["task_id"] in line for line in lines) and any(done["notified_in"] in line for line in lines)


def test_a_story_that_is_not_over_says_what_it_waits_for(server: Server, model: ScriptedModel) -> None:
    model.rules([briefing(), worker("slow", gate="slow")])
    session = server.post("/api/sessions")["id"]
    job = server.spawn(session, "slow")["id"]
    model.held_at("slow")
    told = story(server, job)
    (waits,) = [waits for waits in told["waiting"] if waits["kind"] == "job"]
    assert (waits["state"], waits["task_id"], waits["attempts"]) == ("running", server.job(job)["task_id"], 1)
    shown = CliRunner().invoke(cli.app, ["job", job, "--story", "--url", server.url])
    assert shown.exit_code == 0 and re.search(r"\(job running\) +run=", shown.stdout)
    assert shown.stdout.splitlines()[0].split()[1] == "spawned"
    raw = CliRunner().invoke(cli.app, ["job", job, "--story", "--json", "--url", server.url])
    assert json.loads(raw.stdout)["job"] == job
    server.post(f"/api/background/{job}/cancel")
    server.wait(lambda: "task canceled" in words(story(server, job)))
    assert server.http.get("/api/background/bg-000000000000/story").status_code == 404


def test_s51_a_retry_is_a_second_chapter(server: Server, model: ScriptedModel) -> None:
    model.rules([briefing(), Rule(last_user="^twice$", status=400, text="no", times=1), worker("twice")])
    session = server.post("/api/sessions")["id"]
    job = server.spawn(session, "twice")["id"]
    server.wait(lambda: server.job(job)["notified"])
    server.post(f"/api/background/{job}/retry")
    server.wait(lambda: server.job(job)["attempts"] == 2 and server.job(job)["notified"])
    told = words(story(server, job))
    assert told.count("spawned") == 1 and told.count("retried") == 1 and told.count("told") == 2
    assert told.index("task failed") < told.index("retried") < told.index("task completed")
    assert one(story(server, job), "task failed")["reason"] == "MODEL_FAILED"


def test_below_full_a_story_has_no_words(shared_model: ScriptedModel, tmp_path: Path, processes: list) -> None:
    """What was not kept is in no story, and what was masked neither."""
    shared_model.rules(
        [
            briefing(),
            Rule(last_user="^quiet$", status=503, text=f"busy with {SECRET}", times=1),
            worker("quiet", SECRET),
        ]
    )
    server = Server(tmp_path / "data", env=shared_model.env | {"OUTRIDER_ANSWER_LEVEL": "redacted"})
    processes.append(server)
    server.start()
    session = server.post("/api/sessions")["id"]
    job = server.spawn(session, "quiet", description="quiet")["id"]
    server.wait(lambda: server.job(job)["notified"])
    told = story(server, job)
    assert told["level"] == "redacted" and "try failed" in words(told)
    assert not any("error" in line for line in told["story"]) and SECRET not in json.dumps(told)
