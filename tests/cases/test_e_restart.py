"""Theme E: what was under way, or had ended and was not yet told, survives whatever happens to the process."""

import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from background import tasks
from background.database import Tx
from background.migrating import KEY_FILE
from background.queue import Run
from background.sealing import key_file
from tests.cases.stories import (
    assert_told_once,
    briefing,
    briefings,
    calling,
    fan,
    notifications,
    turns_by_outrider,
    when_quiet,
    when_told,
    worker,
    worker_requests,
)
from tests.support.inside import Inside, Ticking
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of

MakeInside = Callable[..., Inside]
SETTINGS = {"OUTRIDER_LEASE_S": "2", "OUTRIDER_MAX_JOBS": "10", "OUTRIDER_SHUTDOWN_GRACE_S": "2"}
DAY_S = 86_400


def test_S38_S39_S42_jobs_in_every_state_survive_a_kill_and_are_told_once(server: Server, model: ScriptedModel) -> None:
    """Queued, running, ended but untold, told: a registry in memory would have lost or repeated them."""
    fillers = [f"e38 fills {number}" for number in range(9)]
    model.rules(
        [
            worker("e38 is told"),
            Rule(last_user="^e38 talk$", text="Talked.", gate="talk"),
            worker("e38 has ended"),
            worker("e38 runs", "On it.", tool_calls=[calling("memory_recall", query="anything")]),
            Rule(last_tool="(?i)nothing found|reference", text="It went on.", gate="run"),
            *(worker(prompt, gate="fill") for prompt in fillers),
            worker("e38 is queued"),
            briefing(),
        ]
    )
    for session in ("e38-told", "e38-run"):
        server.ask(session, "hello")
    told = server.spawn("e38-told", "e38 is told")["id"]
    when_told(server, told)
    talk = server.say("e38-busy", "e38 talk")
    model.held_at("talk")
    ended = server.spawn("e38-busy", "e38 has ended")["id"]
    server.wait(lambda: turns_by_outrider(server, "e38-busy"))
    runs = server.spawn("e38-run", "e38 runs")["id"]
    model.held_at("run")
    filled = [
        one["id"]
        for one in server.post("/api/background", session="e38-run", jobs=[{"prompt": p} for p in fillers])["jobs"]
    ]
    model.wait_for(lambda asked: [each.gate for each in asked].count("fill") == 9)
    queued = server.spawn("e38-run", "e38 is queued", key="e38")["id"]
    before = server.job(told)
    assert (server.job(runs)["status"], server.job(queued)["status"]) == ("running", "queued")
    assert server.job(ended)["status"] == "completed" and not server.job(ended)["notified"]

    server.kill()
    server.start()
    everything = [told, ended, runs, queued, *filled]
    for job_id in everything:
        shown = server.job(job_id)
        assert shown["id"] == job_id
        assert shown["task_id"] is None or server.task(shown["task_id"])["id"] == shown["task_id"]
    # What reads `running` is at work in a live worker: the model hears from each of them again.
    model.wait_for(lambda asked: all(len(worker_requests(model, prompt)) == 2 for prompt in fillers))
    model.wait_for(lambda asked: len(worker_requests(model, "e38 runs")) == 3)
    _, last_before, first_after = worker_requests(model, "e38 runs")
    assert first_after.messages == last_before.messages, "it went on from its last checkpoint, and asked nothing twice"

    for gate in ("talk", "run", "fill"):
        model.open(gate)
    assert answer_of(server.ended(talk)) == "Talked."
    when_told(server, *everything)
    when_quiet(server, "e38-told", "e38-busy", "e38-run")
    assert server.job(told) == before
    assert server.job(runs)["report"] == "It went on." and server.job(queued)["report"] == "Report on e38 is queued."
    for job_id in everything:
        shown = server.job(job_id)
        assert shown["status"] == "completed" and shown["created_at"] <= shown["started_at"] <= shown["completed_at"]
    assert_told_once(server, "e38-told", told)
    assert_told_once(server, "e38-busy", ended)
    assert_told_once(server, "e38-run", runs, queued, *filled)

    def all_that_is_seen() -> list[Any]:
        sessions = ("e38-told", "e38-busy", "e38-run")
        return [server.job(job_id) for job_id in everything] + [server.messages(session) for session in sessions]

    seen, asked = all_that_is_seen(), len(model.requests())
    server.restart()
    when_quiet(server, "e38-told", "e38-busy", "e38-run")
    assert server.spawn("e38-run", "e38 is queued", key="e38")["id"] == queued, "the key still names the job it made"
    when_quiet(server, "e38-run")
    assert all_that_is_seen() == seen and len(model.requests()) == asked


def snapshot(server: Server, folder: Path) -> Path:
    """A data folder as a crash at this moment would leave it."""
    folder.mkdir()
    here, there = sqlite3.connect(server.data / "outrider.db"), sqlite3.connect(folder / "outrider.db")
    with closing(here), closing(there):
        here.backup(there)
    shutil.copy(server.data / KEY_FILE, folder)
    return folder


def test_S40_a_job_that_was_interrupted_long_ago_is_ended_and_does_not_act_again(
    server: Server, inside: MakeInside, model: ScriptedModel, clock: Ticking, tmp_path: Path
) -> None:
    """Sixteen days later nobody expects it: no request to the model, the reason, and a retry by somebody's act."""
    model.rules([worker("e40 runs", gate="run"), briefing()])
    server.ask("e40", "hello")
    sent = server.spawn("e40", "e40 runs")["id"]
    model.held_at("run")
    left_behind = snapshot(server, tmp_path / "left-behind")
    server.post(f"/api/background/{sent}/cancel")
    when_quiet(server, "e40")

    model.rules([worker("e40 runs"), briefing()])
    clock.advance(time.time() - clock() / 1e6 + 16 * DAY_S)
    later = inside(left_behind, auto_resume=False)
    when_quiet(later, "e40")
    shown = later.job(sent)
    assert shown["status"] == "failed" and shown["error"]["reason"] == "INTERRUPTED" and shown["completed_at"]
    assert shown["prompt"] == "e40 runs" and shown["delivery"]["state"] == "pending"
    assert worker_requests(model, "e40 runs") == []

    later.post(f"/api/background/{sent}/retry")
    later.wait(lambda: later.job(sent)["status"] == "completed")
    assert len(worker_requests(model, "e40 runs")) == 1


def test_S42_a_spawn_that_is_repeated_is_one_job(server: Server, model: ScriptedModel) -> None:
    """Its answer was lost, so it is sent again: once, and five times at once."""
    model.rules([worker("e42 works"), briefing()])
    server.ask("e42", "hello")
    asked = {"session": "e42", "prompt": "e42 works", "description": "a job", "key": "K"}
    sent = [server.post("/api/background", **asked)["id"]]
    with ThreadPoolExecutor(5) as pool:
        sent += [
            made.json()["id"] for made in pool.map(lambda _: server.http.post("/api/background", json=asked), range(5))
        ]
    when_told(server, sent[0])
    sent.append(server.post("/api/background", **asked)["id"])
    when_quiet(server, "e42")
    assert len(sent) == 7 and len(set(sent)) == 1
    assert [one["id"] for one in server.jobs("e42")] == sent[:1]
    assert len(worker_requests(model, "e42 works")) == 1
    assert_told_once(server, "e42", sent[0])
    other = server.http.post("/api/background", json={**asked, "prompt": "something else"})
    assert other.status_code == 409 and other.json()["error"]["code"] == "CONFLICT"


def test_S42_a_post_that_was_lost_or_whose_answer_was_lost_makes_one_task(
    inside: MakeInside, model: ScriptedModel
) -> None:
    """A crash between the job's row and its post, or between the post and its recording."""
    outrider = inside()
    model.rules([worker("e42 is posted"), briefing()])
    outrider.ask("e42p", "hello")
    posts: list[str] = []

    async def lost(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        posts.append("lost")
        raise ConnectionResetError("nothing arrived")

    async def unanswered(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        async def nowhere(message: Message) -> None:
            pass

        posts.append("unanswered")
        await app(scope, receive, nowhere)
        raise ConnectionResetError("it arrived, and the answer did not")

    outrider.break_posts(lost)
    sent = outrider.spawn("e42p", "e42 is posted")["id"]
    outrider.wait(lambda: posts)
    outrider.break_posts(unanswered)
    outrider.pass_pause("dispatch")
    outrider.wait(lambda: len(posts) >= 2)
    outrider.break_posts(None)
    outrider.pass_pause("dispatch")
    outrider.wait(lambda: outrider.job(sent)["completed_at"])
    outrider.pass_time(60)
    when_told(outrider, sent)
    when_quiet(outrider, "e42p")
    assert posts[:2] == ["lost", "unanswered"]
    assert len(outrider.rows("select id from tasks where cause = :job and origin = 'background'", job=sent)) == 1
    assert len(worker_requests(model, "e42 is posted")) == 1
    assert_told_once(outrider, "e42p", sent)


def test_S42_a_step_that_runs_again_after_a_crash_does_not_spawn_again(
    inside: MakeInside, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs are sent out, and before the step can be recorded the worker is gone."""
    outrider = inside()
    model.rules([*fan("e42 fans", "e42 one", "e42 two"), worker("e42 (one|two)"), briefing()])
    recorded, failed = tasks.checkpoint, []

    def crashing(tx: Tx, run: Run, name: str, content: str, facts: dict[str, Any] | None = None) -> str:
        if name.startswith("tool:") and not failed:
            failed.append(name)
            raise RuntimeError("the worker is gone")
        return recorded(tx, run, name, content, facts)

    monkeypatch.setattr(tasks, "checkpoint", crashing)
    turn = outrider.say("e42s", "e42 fans")
    outrider.pass_pause("turn")
    assert answer_of(outrider.ended(turn)) == "Sent out." and failed
    jobs = outrider.jobs("e42s")
    when_told(outrider, *(one["id"] for one in jobs))
    when_quiet(outrider, "e42s")
    assert sorted(one["description"] for one in jobs) == ["E42 ONE", "E42 TWO"]
    assert len(worker_requests(model, "e42 one")) == len(worker_requests(model, "e42 two")) == 1
    assert len(briefings(outrider, "e42s")) == 1


COPIES = """
insert into jobs (id, owner, session, batch_id, key, fingerprint, subagent_type, description, prompt, tools, task_id,
                  status, created_at, started_at, completed_at)
with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < 2000)
select printf('bg-%012x', n), owner, session, batch_id, 'copy:' || n, fingerprint, subagent_type,
       seal('jobs.description', printf('bg-%012x', n)), seal('jobs.prompt', printf('bg-%012x', n)), tools, task_id, status, created_at - n, started_at, completed_at from jobs, numbers where id = ?
"""
WORK_OF_THE_WORKER = ("workers", "runs", "sqlite_sequence")  # heartbeats and leases move by themselves


def rows_of(server: Server) -> dict[str, list[tuple[Any, ...]]]:
    """All that a read could have changed."""
    with closing(sqlite3.connect(f"file:{server.data / 'outrider.db'}?mode=ro", uri=True)) as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        return {
            table: database.execute(f"select * from {table}").fetchall()
            for table in tables
            if table not in WORK_OF_THE_WORKER
        }


def test_S44_reading_two_thousand_jobs_changes_nothing_and_holds_up_no_end(
    server: Server, model: ScriptedModel
) -> None:
    """Twenty clients poll while ten jobs run."""
    model.rules(
        [
            worker("e44 has ended"),
            worker("e44 runs 0", gate="one"),
            *(worker(f"e44 runs {number}", gate="rest") for number in range(1, 10)),
            briefing(),
        ]
    )
    server.ask("e44", "hello")
    ended = server.spawn("e44", "e44 has ended")["id"]
    when_told(server, ended)
    vault = key_file(server.data / KEY_FILE)  # a copied cell would belong to another row
    with closing(sqlite3.connect(server.data / "outrider.db")) as database, database:
        database.create_function("seal", 2, lambda column, row: vault.seal(column, row, "a copy"))
        database.execute(COPIES, (ended,))
    running = server.post("/api/background", session="e44", jobs=[{"prompt": f"e44 runs {n}"} for n in range(10)])[
        "jobs"
    ]
    model.wait_for(lambda asked: sum(each.gate is not None for each in asked) == 10)
    when = server.wait(lambda: rows_of(server) == rows_of(server) and rows_of(server))

    def poll(client: int) -> list[int]:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as http:
            paths = ["/api/background?limit=50", f"/api/background/{running[client % 10]['id']}"] * 5
            return [http.get(path).status_code for path in paths]

    with ThreadPoolExecutor(20) as pool:
        assert {status for codes in pool.map(poll, range(20)) for status in codes} == {200}
        assert rows_of(server) == when
        polling = [pool.submit(poll, client) for client in range(20)]
        opened = time.monotonic()
        model.open("one")
        server.wait(lambda: server.job(running[0]["id"])["status"] == "completed", 2)
        assert time.monotonic() - opened < 2
        assert {status for client in polling for status in client.result()} == {200}
    model.open("rest")
    when_told(server, *(one["id"] for one in running))
    assert "locked" not in server.log()


def test_S45_an_orderly_stop_refuses_finishes_what_it_can_and_hands_back_the_rest(
    server: Server, model: ScriptedModel
) -> None:
    model.rules(
        [
            worker("e45 is nearly done", gate="soon"),
            worker("e45 takes long", gate="never", times=1),
            worker("e45 takes long", "After all."),
            briefing(),
        ]
    )
    server.ask("e45", "hello")
    soon, long = (server.spawn("e45", prompt)["id"] for prompt in ("e45 is nearly done", "e45 takes long"))
    model.held_at("soon")
    model.held_at("never")

    os.kill(server.pid, signal.SIGTERM)
    asked = time.monotonic()
    refused = server.wait(lambda: stopped_taking(server))
    assert refused and refused.status_code == 503 and refused.headers["retry-after"]
    assert refused.json()["error"]["code"] == "WORKER_UNAVAILABLE" and "stopping" in refused.json()["error"]["message"]
    message = {"messageId": "e45", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    assert server.rpc("SendMessage", {"message": message})["error"]["code"] == -32000
    model.open("soon")
    assert server.stop() == 0
    assert time.monotonic() - asked < 7

    server.start()
    assert server.job(soon)["status"] == "completed" and len(worker_requests(model, "e45 is nearly done")) == 1
    when_told(server, soon, long)
    when_quiet(server, "e45")
    shown = server.job(long)
    assert shown["report"] == "After all." and shown["attempts"] == 1
    assert len(worker_requests(model, "e45 takes long")) == 2
    assert_told_once(server, "e45", soon, long)
    assert not [job_id for job_id in (soon, long) if len(notifications(server, "e45", job_id)) != 1]


def stopped_taking(server: Server) -> httpx.Response | None:
    """The answer to a message, once it is a refusal."""
    answer = server.http.post("/api/sessions/e45/messages", json={"text": "hello"})
    return None if answer.is_success else answer
