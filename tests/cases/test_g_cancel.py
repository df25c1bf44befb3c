"""Theme G: a cancel stops the work, is called what it is, and wakes nobody."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent.taking_up import Turn
from background import tasks, terminal
from background.errors import LeaseLost
from background.queue import Run
from background.terminal import Outcome
from background.worker import Handler
from tests.cases.stories import (
    assert_told_once,
    blocks_in,
    briefing,
    briefings,
    calling,
    chat_requests,
    fan,
    notifications,
    turns_by_outrider,
    when_quiet,
    when_told,
    worker,
    worker_requests,
)
from tests.support.inside import Inside
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import ROOT, Server, answer_of

MakeInside = Callable[..., Inside]
SETTINGS = {"OUTRIDER_MAX_JOBS": "4"}


def by_console(server: Server, session: str, job: dict[str, Any]) -> str:
    server.post(f"/api/background/{job['id']}/cancel")
    return "user"


def by_command(server: Server, session: str, job: dict[str, Any]) -> str:
    env = {"PATH": os.environ["PATH"], "OUTRIDER_URL": server.url}
    command = [sys.executable, "-m", "web.cli", "stop", job["id"]]
    subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, timeout=30)
    return "user"


def by_model(server: Server, session: str, job: dict[str, Any]) -> str:
    assert "canceled" in server.ask(session, f"stop {job['id']}")
    return "agent"


def by_a2a(server: Server, session: str, job: dict[str, Any]) -> str:
    task = server.rpc("CancelTask", {"id": job["task_id"]})["result"]
    assert task["status"]["state"] == "TASK_STATE_CANCELED"
    return "user"


ROADS = {"console": by_console, "command line": by_command, "model": by_model, "A2A": by_a2a}


def test_S55_a_canceled_job_is_stopped_and_stays_so(server: Server, model: ScriptedModel) -> None:
    """By every road in turn: no further request to the model, after a restart and a new message too."""
    prompts = {road: f"s55 by {road}" for road in ROADS}
    model.rules(
        [
            *(
                worker(prompt, "Looking.", tool_calls=[calling("memory_recall", query="it")])
                for prompt in prompts.values()
            ),
            Rule(last_tool="(?i)nothing found|reference", gate="never", text="Too late."),
            Rule(last_user="^stop (bg-.*)$", tool_calls=[calling("stop_task", job_id="{1}")]),
            Rule(last_tool="^(bg-.* is canceled.*)$", text="{1}"),
            briefing(),
        ]
    )
    canceled = {}
    for number, (road, cancel) in enumerate(ROADS.items()):
        session = f"s55-{number}"
        server.ask(session, "hello")
        job = server.spawn(session, prompts[road])
        held = model.held_at("never")
        by = cancel(server, session, server.job(job["id"]))
        model.wait_for(lambda asked, held=held: held.gone_at, 3)
        shown = server.job(job["id"])
        assert (shown["status"], shown["canceled_by"], shown["error"]) == ("canceled", by, None), road
        assert server.ended(shown["task_id"])["status"]["state"] == "TASK_STATE_CANCELED"
        canceled[session, job["id"], prompts[road]] = shown
    server.restart()
    for (session, job_id, prompt), shown in canceled.items():
        server.ask(session, "And now?")
        when_quiet(server, session)
        assert apart_from_the_telling(server.job(job_id)) == apart_from_the_telling(shown)
        assert len(worker_requests(model, prompt)) == 2


def apart_from_the_telling(job: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in job.items() if key != "delivery" and not key.startswith("notified")}


def test_S56_a_cancel_is_named_by_what_it_met(server: Server, model: ScriptedModel) -> None:
    """Queued, running, ended, canceled already, unknown: never failed, completed or not found by chance."""
    fillers = [f"s56 fills {number}" for number in range(3)]
    model.rules([*(worker(prompt, gate="fill") for prompt in fillers), worker("s56 runs", gate="never"), briefing()])
    server.ask("s56", "hello")
    filled = [
        one["id"]
        for one in server.post("/api/background", session="s56", jobs=[{"prompt": p} for p in fillers])["jobs"]
    ]
    model.wait_for(lambda asked: len(asked) == 4)
    runs = server.spawn("s56", "s56 runs")["id"]
    model.held_at("never")
    queued = server.spawn("s56", "s56 never starts")["id"]
    assert server.job(queued)["status"] == "queued"
    for job_id in (queued, runs):
        assert server.post(f"/api/background/{job_id}/cancel")["status"] == "canceled"
        for _ in range(2):
            again = server.http.post(f"/api/background/{job_id}/cancel")
            assert again.status_code == 409 and again.json()["error"]["details"]["status"] == "canceled"
    model.open("fill")
    when_told(server, *filled)
    ended = server.http.post(f"/api/background/{filled[0]}/cancel")
    assert ended.status_code == 409 and "completed" in ended.json()["error"]["message"]
    assert server.http.post("/api/background/bg-000000000000/cancel").status_code == 404
    done = server.job(filled[0])["task_id"]
    assert server.rpc("CancelTask", {"id": done})["error"]["code"] == -32002
    assert server.rpc("CancelTask", {"id": "nothing-of-the-kind"})["error"]["code"] == -32001
    assert worker_requests(model, "s56 never starts") == []

    server.ask("s56", "And now?")
    for job_id in (queued, runs):
        (told,) = notifications(server, "s56", job_id)
        (block,) = [block for block in blocks_in(told["text"]) if block["job-id"] == job_id]
        assert (block["status"], block["reason canceled-by"]) == ("canceled", "user")
        assert "do not send it out again" in block["reason"] and "result" not in block


def test_S56_a_cancel_just_before_the_end_gives_one_of_the_two_ends_in_every_view(
    server: Server, model: ScriptedModel
) -> None:
    session = "s56-race"
    model.rules([worker(f"s56 races {number}", gate=f"race {number}") for number in range(4)] + [briefing()])
    server.ask(session, "hello")
    for number in range(4):
        job_id = server.spawn(session, f"s56 races {number}")["id"]
        model.held_at(f"race {number}")
        model.open(f"race {number}")
        time.sleep(number * 0.004)
        answer = server.http.post(f"/api/background/{job_id}/cancel")
        server.wait(lambda job_id=job_id: server.job(job_id)["completed_at"])
        shown = server.job(job_id)
        assert shown["status"] == ("canceled" if answer.is_success else "completed"), answer.text
        assert server.ended(shown["task_id"])["status"]["state"] == f"TASK_STATE_{shown['status'].upper()}"
        assert [one["id"] for one in server.jobs(session, status=shown["status"])].count(job_id) == 1
        assert bool(shown["report"]) == (shown["status"] == "completed")


def test_S57_what_its_user_canceled_starts_no_turn_and_is_told_once_with_the_next(
    server: Server, model: ScriptedModel
) -> None:
    model.rules([worker("s57 works", gate="never"), briefing()])
    server.ask("s57", "hello")
    sent = server.spawn("s57", "s57 works")["id"]
    model.held_at("never")
    server.post(f"/api/background/{sent}/cancel")
    when_quiet(server, "s57")
    assert not turns_by_outrider(server, "s57")
    assert not any(sent in str(asked.messages) for asked in chat_requests(model))
    assert server.job(sent)["delivery"]["state"] == "pending"
    for said in ("What now?", "And then?"):
        server.ask("s57", said)
    assert_told_once(server, "s57", sent)
    assert len(notifications(server, "s57", sent)) == 1 and not turns_by_outrider(server, "s57")


def test_S58_canceling_a_turn_leaves_its_jobs_and_stopping_the_jobs_leaves_the_turn(
    server: Server, model: ScriptedModel
) -> None:
    model.rules(
        [
            *fan("s58 turn", "s58 one", "s58 two", gate="turn"),
            *fan("s58 jobs", "s58 three", "s58 four", gate="turn"),
            worker("s58 (one|two)", "Done.", gate="jobs"),
            worker("s58 (three|four)", gate="never"),
            briefing(),
        ]
    )
    turn = server.say("s58-turn", "s58 turn")
    model.held_at("turn")
    kept = [one["id"] for one in server.jobs("s58-turn")]
    server.wait(lambda: all(server.job(job_id)["status"] == "running" for job_id in kept))
    canceled = server.rpc("CancelTask", {"id": turn})["result"]
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    assert [server.job(job_id)["status"] for job_id in kept] == ["running"] * 2
    model.open("jobs")
    when_told(server, *kept)
    when_quiet(server, "s58-turn")
    assert_told_once(server, "s58-turn", *kept)
    assert [said["state"] for said in server.messages("s58-turn") if said["kind"] == "agent"] == [
        "canceled",
        "completed",
    ]

    turn = server.say("s58-jobs", "s58 jobs")
    server.wait(lambda: [one["status"] for one in server.jobs("s58-jobs")] == ["running"] * 2)
    stopped = server.post("/api/sessions/s58-jobs/stop")["canceled"]
    assert set(stopped) == {one["id"] for one in server.jobs("s58-jobs")} and len(stopped) == 2
    assert server.task(turn)["status"]["state"] == "TASK_STATE_WORKING"
    model.open("turn")
    assert answer_of(server.ended(turn)) == "Sent out."
    when_quiet(server, "s58-jobs")
    assert {one["status"] for one in server.jobs("s58-jobs")} == {"canceled"} and not briefings(server, "s58-jobs")


def test_S60_a_worker_whose_attempt_is_over_can_write_nothing_any_more(
    inside: MakeInside, model: ScriptedModel
) -> None:
    """Canceled, retried, ended; then the first attempt's worker comes with its own answer."""
    outrider = inside(start=False)
    attempts: list[Run] = []

    def around(kind: str, handler: Handler) -> Handler:
        async def remembered(begun: tuple[Run, Turn]) -> None:
            attempts.append(begun[0])
            await handler.run(begun)

        return replace(handler, run=remembered) if kind == "job" else handler

    outrider.around = around
    outrider.start()
    model.rules([worker("s60 works", gate="never", times=1), worker("s60 works", "The second."), briefing()])
    outrider.ask("s60", "hello")
    sent = outrider.spawn("s60", "s60 works")["id"]
    model.held_at("never")
    first_task = outrider.job(sent)["task_id"]
    outrider.post(f"/api/background/{sent}/cancel")
    outrider.post(f"/api/background/{sent}/retry")
    when_told(outrider, sent)
    when_quiet(outrider, "s60")
    seen, log = outrider.job(sent), outrider.messages("s60")
    assert seen["report"] == "The second." and seen["task_id"] != first_task and len(attempts) == 2

    late = Outcome("completed", [{"artifactId": "late", "parts": [{"text": "The first."}]}])
    for run in attempts:
        assert outrider.write(terminal.settle, run, late) is False
        with pytest.raises(LeaseLost):
            outrider.write(tasks.checkpoint, run, "model:9", "[]")
    when_quiet(outrider, "s60")
    assert outrider.job(sent) == seen and outrider.messages("s60") == log
    assert answer_of(outrider.task(first_task)) == ""
    hits = outrider.get("/api/knowledge/search", q="second", session="s60")["hits"]
    assert [hit["job_id"] for hit in hits] == [sent]
