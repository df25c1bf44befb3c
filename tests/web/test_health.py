"""Is it alive, is it ready, how much waits: what a probe, a scraper and an operator read."""

import re
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.web.shapes import TIME, told

SAMPLE = re.compile(r'(\w+)(\{[a-z]+="[\w-]+"(?:,[a-z]+="[\w-]+")*\})? (-?\d+(?:\.\d+)?(?:e-?\d+)?)')


def figures(server: Server) -> dict[str, float]:
    """The samples of /metrics by name and labels, after a look at the form that Prometheus reads."""
    answer = server.http.get("/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    described: set[str] = set()
    found: dict[str, float] = {}
    for line in answer.text.splitlines():
        if line.startswith("# "):
            _, what, name, rest = line.split(" ", 3)
            assert what in ("HELP", "TYPE") and rest
            described.add(name)
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample and sample[1] in described, line
        found[sample[1] + (sample[2] or "")] = float(sample[3])
    return found


def test_a_server_that_does_its_work_is_alive_and_ready_and_says_no_more_to_whoever_asks(api: Server) -> None:
    assert api.get("/healthz") == {"alive": True}
    assert api.get("/readyz") == {"ready": True}


def test_the_status_tells_an_operator_who_works_what_waits_and_by_which_settings(api: Server) -> None:
    status = api.get("/api/status")
    assert {"live", "workers", "queue", "undelivered", "stores", "settings", "problems"} <= status.keys()
    assert status["live"] is True and status["problems"] == []
    (worker,) = [
        each for each in status["workers"] if each["pid"] == api.pid
    ]  # one that was killed is heard of for a while
    assert worker["live"] and all(TIME.fullmatch(worker[name]) for name in ("started_at", "beat_at", "swept_at"))
    assert status["stores"]["registry"]["ok"] and status["stores"]["registry"]["bytes"] > 0
    assert status["stores"]["knowledge"]["ok"] and status["stores"]["knowledge"]["documents"] > 0
    assert status["settings"]["max_queued_jobs"] == 8 and status["settings"]["profiles"] == ["chat", "echo"]


def test_f171_the_figures_move_with_what_happens(api: Server, model: ScriptedModel) -> None:
    model.rules(
        [
            {"last_user": "job", "not_anywhere": "task-notification", "gate": "g", "text": "r"},
            {"gate": "h", "text": "x"},
        ]
    )
    session = api.post("/api/sessions")["id"]
    api.wait(lambda: figures(api).get('outrider_runs{kind="job",state="running"}', 0) == 0)
    calm = figures(api)
    assert calm["outrider_workers_live"] >= 1
    assert calm["outrider_waiting_requests"] == calm["outrider_streams"] == 0
    job = api.spawn(session, "job")
    model.held_at("g")
    assert figures(api)['outrider_runs{kind="job",state="running"}'] == 1
    model.open("g")
    model.held_at("h")
    during = figures(api)
    assert during["outrider_undelivered"] == calm["outrider_undelivered"] + 1
    assert during["outrider_undelivered_oldest_seconds"] > 0
    assert during['outrider_runs{kind="turn",state="running"}'] == 1
    with ThreadPoolExecutor(1) as pool:
        sent = {"messageId": session, "role": "ROLE_USER", "parts": [{"text": "hello"}], "contextId": f"{session}.a2a"}
        waiting = pool.submit(api.rpc, "SendMessage", {"message": sent}, **{"A2A-Version": "1.0"})
        api.wait(lambda: figures(api)["outrider_waiting_requests"] == 1)
        model.open("h")
        assert "result" in waiting.result()
    api.wait(lambda: api.job(job["id"])["notified"])
    after = figures(api)
    assert after["outrider_undelivered"] == calm["outrider_undelivered"] and after["outrider_waiting_requests"] == 0


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for which nobody works."""
    with Server(tmp_path_factory.mktemp("lone") / "data", "--no-worker") as server:
        yield server


def test_f173_without_a_worker_it_is_alive_and_not_ready_and_the_status_names_the_effect(lone: Server) -> None:
    assert lone.get("/healthz") == {"alive": True}
    answer = lone.http.get("/readyz")
    assert answer.status_code == 503 and answer.json() == {"ready": False}
    status = lone.get("/api/status")
    assert status["live"] is False and not any(worker["live"] for worker in status["workers"])
    assert any(problem.startswith("WORKER_UNAVAILABLE: ") for problem in status["problems"])
    assert figures(lone)["outrider_workers_live"] == 0


def test_a34_a_server_that_works_on_nothing_never_becomes_a_worker_however_often_it_renews(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "--no-worker", env={"OUTRIDER_LEASE_S": "0.1"}) as server:
        until = time.monotonic() + 1  # some thirty heartbeats
        while time.monotonic() < until:
            assert server.http.get("/readyz").status_code == 503
            refused = server.http.post("/api/sessions/new/messages", json={"text": "hello"})
            assert told(refused) == (503, "WORKER_UNAVAILABLE")
        assert server.get("/api/status")["workers"] == []
        assert server.stop() == 0
    with closing(sqlite3.connect(tmp_path / "data" / "outrider.db")) as stored:
        assert stored.execute("select count(*) from workers").fetchone() == (0,)


def test_a_worker_that_was_killed_is_not_listed_as_live_once_it_has_missed_a_few_sweeps(tmp_path: Path) -> None:
    """Given a killed worker of this host and one of another host, each not heard of for half a minute."""
    data = tmp_path / "data"
    with Server(data) as server:
        server.kill()
    with Server(data, "--no-worker") as server:
        with closing(sqlite3.connect(data / "outrider.db", isolation_level=None)) as stored:
            ago = "(strftime('%s', 'now') - 30) * 1000000"
            stored.execute(f"update workers set beat_at = {ago}, swept_at = {ago}")
            stored.execute(f"insert into workers values ('away', 'another-host', 1, {ago}, {ago}, {ago})")
            stored.execute("insert into workers values ('old', 'another-host', 2, 1, 1, 1)")
        workers = server.get("/api/status")["workers"]
        assert sorted((worker["host"] == "another-host", worker["live"]) for worker in workers) == [
            (False, False),
            (True, True),
        ]
        assert figures(server)["outrider_workers_live"] == 1


def test_a34_without_a_worker_no_message_is_taken_over_the_api_either(lone: Server) -> None:
    answer = lone.http.post("/api/sessions/new/messages", json={"text": "hello"})
    assert told(answer) == (503, "WORKER_UNAVAILABLE") and answer.headers["retry-after"]
    assert told(lone.http.get("/api/sessions/new")) == (404, "NOT_FOUND")


def test_s69_a_knowledge_store_that_cannot_be_read_is_an_error_and_never_nothing(lone: Server) -> None:
    """And it is named where an operator looks; what does not need it goes on."""
    with closing(sqlite3.connect(lone.data / "knowledge.db", isolation_level=None)) as stranger:
        stranger.execute("alter table document rename to lost")
    answers = [
        lone.http.get("/api/knowledge/search", params={"q": "anything"}),
        lone.http.get("/api/knowledge/documents"),
    ]
    assert [told(answer) for answer in answers] == [(503, "KNOWLEDGE_UNAVAILABLE")] * 2
    assert lone.http.get("/readyz").status_code == 503
    status = lone.get("/api/status")
    assert any("knowledge store" in problem for problem in status["problems"])
    assert status["stores"]["knowledge"] == {"ok": False}
    assert lone.get("/healthz") == {"alive": True} and lone.get("/api/background")["jobs"] == []
