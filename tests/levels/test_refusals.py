"""F044: a profile that can keep no result takes no work: refused before anything is created, and said at the start."""

import json
import sqlite3
from contextlib import closing

import httpx
import pytest

from tests.levels.conftest import Serving
from tests.levels.watching import Watch
from tests.support.scripted import ScriptedModel
from tests.support.server import Server

CANARY = "canary-2c9d"
LOW = pytest.mark.parametrize("level", ["metadata", "none"])
TABLES = ("sessions", "tasks", "receipts", "runs", "messages", "results", "checkpoints", "jobs", "events", "views")


def rows(server: Server) -> int:
    """How many rows there are of all that a message could make; what the server's own purge wants is not counted."""
    with closing(sqlite3.connect(f"file:{server.data}/outrider.db?mode=ro", uri=True)) as db:
        count = sum(db.execute(f"select count(*) from {table}").fetchone()[0] for table in TABLES)
        return count - db.execute("select count(*) from runs where task_id is null").fetchone()[0]


def low_profile(level: str) -> str:
    return f'[profiles.low]\ndescription = "keeps nothing"\nanswer_level = "{level}"\n'


def asked_in_all_ways(watch: Watch, skill: str) -> list[httpx.Response]:
    """Blocking, return-immediately and streaming over A2A, and over `/api`."""
    http = watch.server.http
    answers = []
    for method, configuration in [
        ("SendMessage", {}),
        ("SendMessage", {"returnImmediately": True}),
        ("SendStreamingMessage", {}),
    ]:
        params = {"message": watch.message(CANARY, skill=skill), "configuration": configuration}
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answers.append(http.post("/a2a", json=request, headers={"A2A-Version": "1.0"}))
    answers.append(http.post("/api/sessions/s/messages", json={"text": CANARY, "skill": skill}))
    return answers


@LOW
def test_f044_a_profile_below_redacted_is_refused_alike_in_every_way_and_leaves_no_row(
    serving: Serving, scripted: ScriptedModel, level: str
) -> None:
    watch = serving(low_profile(level), OUTRIDER_PROFILES="chat,low")
    *over_a2a, over_api = asked_in_all_ways(watch, "low")
    for answer in over_a2a:
        error = answer.json()["error"]
        assert error["code"] == -32004 and "RESULT_NOT_STORABLE" in json.dumps(error["data"])
    assert over_api.json()["error"]["code"] == "RESULT_NOT_STORABLE"
    assert rows(watch.server) == 0 and scripted.requests() == []
    assert watch.places(CANARY) == []


@LOW
def test_f044_an_installation_below_redacted_takes_no_message_and_no_job(
    serving: Serving, scripted: ScriptedModel, level: str
) -> None:
    watch = serving(OUTRIDER_ANSWER_LEVEL=level)
    for answer in asked_in_all_ways(watch, "chat"):
        assert "RESULT_NOT_STORABLE" in answer.text
    watch.server.post("/api/sessions", id="s")
    before = rows(watch.server)
    job = {"session": "s", "prompt": CANARY, "description": CANARY}
    sent = watch.server.http.post("/api/background", json=job)
    assert sent.status_code == 422 and sent.json()["error"]["code"] == "RESULT_NOT_STORABLE"
    assert rows(watch.server) == before and scripted.requests() == []
    assert watch.places(CANARY) == []


def test_f044_the_start_says_so_already(serving: Serving) -> None:
    watch = serving(low_profile("metadata"), OUTRIDER_PROFILES="chat,low")
    assert "RESULT_NOT_STORABLE" in watch.server.log() and "profile low" in watch.server.log()
    assert "RESULT_NOT_STORABLE" in json.dumps(watch.server.get("/api/status"))


def test_another_profile_of_the_same_server_is_not_refused(serving: Serving) -> None:
    watch = serving(low_profile("none"), OUTRIDER_PROFILES="chat,low")
    assert watch.send("hello")["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
