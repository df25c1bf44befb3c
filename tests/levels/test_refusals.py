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

LOW = pytest.mark.parametrize("level", ["metadata", "none"])
TABLES = ("sessions", "tasks", "receipts", "messages", "results", "checkpoints", "jobs", "events", "views", "journal")
TWO_LOW_PROFILES = "".join(
    f'[profiles.at-{level}]\ndescription = "keeps nothing"\nanswer_level = "{level}"\n'
    for level in ("metadata", "none")
)


def with_low_profiles(serving: Serving) -> Watch:
    return serving(TWO_LOW_PROFILES, OUTRIDER_PROFILES="chat,at-metadata,at-none")


def rows(server: Server) -> int:
    """How many rows there are of all that a message or a job makes."""
    with closing(sqlite3.connect(f"file:{server.data}/outrider.db?mode=ro", uri=True)) as db:
        return sum(db.execute(f"select count(*) from {table}").fetchone()[0] for table in TABLES)


def asked_in_all_ways(watch: Watch, text: str, skill: str) -> list[httpx.Response]:
    """Blocking, return-immediately and streaming over A2A, and over `/api`."""
    http = watch.server.http
    answers = []
    for method, configuration in [
        ("SendMessage", {}),
        ("SendMessage", {"returnImmediately": True}),
        ("SendStreamingMessage", {}),
    ]:
        params = {"message": watch.message(text, skill=skill), "configuration": configuration}
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answers.append(http.post("/a2a", json=request, headers={"A2A-Version": "1.0"}))
    answers.append(http.post("/api/sessions/s/messages", json={"text": text, "skill": skill}))
    return answers


@LOW
def test_f044_a_profile_below_redacted_is_refused_alike_in_every_way_and_leaves_no_row(
    serving: Serving, model: ScriptedModel, word: str, level: str
) -> None:
    watch = with_low_profiles(serving)
    before = rows(watch.server)
    *over_a2a, over_api = asked_in_all_ways(watch, word, f"at-{level}")
    for answer in over_a2a:
        error = answer.json()["error"]
        assert error["code"] == -32004 and "RESULT_NOT_STORABLE" in json.dumps(error["data"])
    assert over_api.json()["error"]["code"] == "RESULT_NOT_STORABLE"
    assert rows(watch.server) == before and model.requests() == []
    assert watch.places(word) == []


def test_f044_an_installation_below_redacted_takes_no_message_and_no_job(
    serving: Serving, model: ScriptedModel, word: str
) -> None:
    watch = serving(OUTRIDER_ANSWER_LEVEL="metadata")
    assert all("RESULT_NOT_STORABLE" in answer.text for answer in asked_in_all_ways(watch, word, "chat"))
    watch.server.post("/api/sessions", id="s")
    before = rows(watch.server)
    sent = watch.server.http.post("/api/background", json={"session": "s", "prompt": word, "description": word})
    assert sent.status_code == 422 and sent.json()["error"]["code"] == "RESULT_NOT_STORABLE"
    assert rows(watch.server) == before and model.requests() == []
    assert watch.places(word) == []


@LOW
def test_f044_the_start_says_so_already(serving: Serving, level: str) -> None:
    server = with_low_profiles(serving).server
    for told in (server.log(), json.dumps(server.get("/api/status"))):
        assert f"RESULT_NOT_STORABLE: the profile at-{level}" in told


def test_another_profile_of_the_same_server_is_not_refused(serving: Serving, model: ScriptedModel) -> None:
    assert with_low_profiles(serving).task("hello")["status"]["state"] == "TASK_STATE_COMPLETED"
