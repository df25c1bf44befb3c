"""F089, F090, S55, A02, A48, A49: a cancel stops the work, wherever it is, and nothing follows it."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing

import pytest

from tests.a2a import wire
from tests.a2a.wire import CANCELED, COMPLETED
from tests.interrupts import words
from tests.support.scripted import ScriptedModel
from tests.support.server import ROOT, Server, answer_of
from tests.support.trial import Trial


def test_a49_a_task_in_the_queue_never_begins(server: Server, trial: Trial) -> None:
    door, context = wire.fresh("door"), wire.fresh()
    ahead = words.began(server, f"wait {door}", "trial", contextId=context)
    behind = words.began(server, "note ran", "trial", contextId=context)
    server.wait(lambda: len(trial.diary()) == 1)
    canceled = wire.cancel(server, behind["id"])
    assert canceled["metadata"]["stopped"] == "submitted"
    trial.open(door)
    server.ended(ahead["id"])
    assert wire.get(server, behind["id"]) == canceled and len(trial.diary()) == 1


def test_a48_a_tool_is_told_to_stop_no_request_follows_and_the_end_stays(
    server: Server, model: ScriptedModel, trial: Trial
) -> None:
    door = wire.fresh("door")
    model.rules([words.calling(("dwell", {"door": door})), words.ending()])
    task = words.began(server)
    server.wait(lambda: trial.diary() == [f"dwells at {door}"])
    canceled = wire.cancel(server, task["id"])
    server.wait(lambda: trial.diary()[-1] == f"stopped at {door}", 3)
    trial.open(door)
    assert canceled["metadata"]["stopped"] == "working"
    assert canceled["status"]["message"]["parts"] == [{"text": "Canceled by its user."}]
    assert wire.get(server, task["id"]) == canceled and len(model.requests()) == 1


def test_a02_a_handler_is_stopped_where_it_stands_and_what_it_would_have_said_is_nowhere(
    server: Server, trial: Trial
) -> None:
    door = wire.fresh("door")
    with wire.stream(
        server, "SendStreamingMessage", {"message": wire.message(f"wait {door}; note x", "trial")}
    ) as frames:
        task = next(frames)["task"]
        server.wait(lambda: len(trial.diary()) == 1)
        canceled = wire.cancel(server, task["id"])
        trial.open(door)
        ended = wire.replayed([{"task": task}, *frames])
    assert ended["status"] == canceled["status"] and canceled["status"]["state"] == CANCELED
    assert ended["artifacts"] == [] and len(trial.diary()) == 1


def test_a49_a_cancel_accepted_by_one_process_stops_the_work_of_another(
    own: Callable[..., Server], model: ScriptedModel, trial: Trial
) -> None:
    """It stands in the rows: no notice between the processes is needed."""
    worker = own()
    door = own("--no-worker", data=worker.data)
    there = wire.fresh("door")
    model.rules([words.calling(("dwell", {"door": there})), words.ending()])
    task = words.began(worker)
    worker.wait(lambda: trial.diary() == [f"dwells at {there}"])
    canceled = wire.cancel(door, task["id"])
    worker.wait(lambda: trial.diary()[-1] == f"stopped at {there}", 5)
    assert wire.get(worker, task["id"]) == canceled and len(model.requests()) == 1


def test_s55_what_cannot_be_stopped_is_named_in_the_reply(server: Server, model: ScriptedModel, trial: Trial) -> None:
    """A handler, and a tool, of a plugin that are not async; what they bring is kept nowhere."""
    door, other = wire.fresh("door"), wire.fresh("door")
    model.rules([words.calling(("linger", {"door": other})), words.ending()])
    handled, called = words.began(server, f"wait {door}", "trial-sync"), words.began(server)
    server.wait(lambda: len(trial.diary()) == 2)
    for task, name in ((handled, "trial-sync"), (called, "linger")):
        canceled = wire.cancel(server, task["id"])
        (part,) = canceled["status"]["message"]["parts"]
        assert "cannot be stopped" in part["text"] and f"to its end: {name}." in part["text"]
        trial.open(other if task is called else door)
    server.wait(
        lambda: f"went through {other}" in trial.diary() and any(line.startswith("ended") for line in trial.diary())
    )
    assert wire.get(server, called["id"]) == canceled and len(model.requests()) == 1


def test_s55_a_call_that_has_ended_is_not_named(server: Server, model: ScriptedModel, trial: Trial) -> None:
    door, other = wire.fresh("door"), wire.fresh("door")
    trial.open(door)
    model.rules([words.calling(("linger", {"door": door}), ("dwell", {"door": other})), words.ending()])
    task = words.began(server)
    server.wait(lambda: {f"went through {door}", f"dwells at {other}"} <= set(trial.diary()))
    server.wait(lambda: _kept(server, task["id"]) == 1)
    canceled = wire.cancel(server, task["id"])
    assert canceled["status"]["message"]["parts"] == [{"text": "Canceled by its user."}]


def _kept(server: Server, task_id: str) -> int:
    """How many tools' results are kept for a task, as a stranger to the server sees it."""
    with closing(sqlite3.connect(server.data / "outrider.db")) as stranger:
        wanted = "select count(*) from checkpoints where task_id = ? and name like 'tool:%'"
        return stranger.execute(wanted, [task_id]).fetchone()[0]


@pytest.mark.parametrize("way", ["api", "stop_task", "command"])
def test_s55_what_of_a_job_cannot_be_stopped_is_named_by_whatever_stops_it(
    server: Server, model: ScriptedModel, trial: Trial, way: str
) -> None:
    door, session, prompt = wire.fresh("door"), wire.fresh("s"), f"s55 lasting {way}"
    model.rules(
        [
            words.worker(prompt, **words.calling(("linger", {"door": door}))),
            {"last_user": r"^stop (\S+)$", **words.calling(("stop_task", {"job_id": "{1}"}))},
            words.ending("{1}", last_tool="its work is stopped(.*)"),
        ]
    )
    job = words.job(server, session, "loner", prompt)
    server.wait(lambda: trial.diary() == [f"lingers at {door}"])
    match way:
        case "api":
            told = server.post(f"/api/background/{job['id']}/cancel")["note"]
        case "stop_task":
            told = answer_of(wire.send(server, wire.said(f"stop {job['id']}", contextId=session)))
        case _:
            command = [sys.executable, "-m", "web.cli", "stop", job["id"], "--url", server.url]
            told = subprocess.run(command, cwd=ROOT, env=server.env, capture_output=True, text=True, timeout=60).stderr
    assert "cannot be stopped and goes on to its end: linger." in told
    trial.open(door)
    server.wait(lambda: f"went through {door}" in trial.diary())
    assert server.job(job["id"])["status"] == "canceled" and server.job(job["id"])["report"] in (None, "")


@pytest.mark.parametrize("way", ["api", "stop_task", "a2a", "session"])
def test_s55_a_canceled_jobs_tool_is_stopped_and_its_model_asked_no_more(
    server: Server, model: ScriptedModel, trial: Trial, way: str
) -> None:
    door, session, prompt = wire.fresh("door"), wire.fresh("s"), f"s55 {way}"
    model.rules(
        [
            words.worker(prompt, **words.calling(("dwell", {"door": door}))),
            {"last_user": r"^stop (\S+)$", **words.calling(("stop_task", {"job_id": "{1}"}))},
            words.ending("Stopped.", last_tool="is canceled"),
        ]
    )
    job = words.job(server, session, "loner", prompt)
    server.wait(lambda: trial.diary() == [f"dwells at {door}"])
    task_id = server.job(job["id"])["task_id"]
    match way:
        case "api":
            server.post(f"/api/background/{job['id']}/cancel")
        case "stop_task":
            wire.send(server, wire.said(f"stop {job['id']}", contextId=session))
        case "a2a":
            wire.cancel(server, task_id)
        case "session":
            assert server.post(f"/api/sessions/{session}/stop") == {"canceled": [job["id"]]}
    server.wait(lambda: trial.diary()[-1] == f"stopped at {door}", 3)
    trial.open(door)
    ended = server.job(job["id"])
    assert ended["status"] == "canceled"
    assert ended["canceled_by"] == ("agent" if way == "stop_task" else "user")
    assert server.ended(task_id)["status"]["state"] == CANCELED
    assert len([asked for asked in model.requests() if asked.messages[1]["content"] == prompt]) == 1
    assert server.http.post(f"/api/background/{job['id']}/cancel").status_code == 409


def test_f089_canceling_a_parked_turn_lets_the_next_one_go(server: Server, model: ScriptedModel, trial: Trial) -> None:
    """And it never touches the turn's jobs."""
    door, prompt, context = wire.fresh("door"), "f089 stays out", wire.fresh("s")
    send = {"description": "d", "prompt": prompt, "subagent_type": "loner", "run_in_background": True}
    model.rules(
        [
            words.worker(prompt, **words.calling(("dwell", {"door": door}))),
            words.worker(prompt, text="Report."),
            {"last_user": "^out$", **words.calling(("task", send))},
            words.paying(last_tool="sent out"),
            {"last_user": "^next$", "text": "Next."},
        ]
    )
    task = words.asked(server, "out", contextId=context)
    following = words.began(server, "next", contextId=context)
    server.wait(lambda: f"dwells at {door}" in trial.diary())
    canceled = wire.cancel(server, task["id"])
    assert canceled["metadata"]["stopped"] == "input_required"
    assert server.ended(following["id"])["status"]["state"] == COMPLETED
    (job,) = server.jobs(context)
    assert job["status"] == "running"
    trial.open(door)
    words.in_status(server, job["id"], "completed")
