"""F145, S84: a plugin's knowledge store in a whole server; where it fails, that is said, and all else goes on."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.serving import Serving
from tests.support.trial import Trial
from web.app import build
from web.settings import BadSetting, load

WORK = [Rule(anywhere="detached, in the background", last_user="^work", text="Report: a zyzzyva is a weevil.")]


@pytest.fixture
def ear(tmp_path: Path) -> Trial:
    return Trial(tmp_path / "ear")


def with_second(own: Serving, ear: Trial) -> Server:
    return own(TRIAL="second", TRIAL_FOLDER=str(ear.folder), OUTRIDER_KNOWLEDGE="second")


def hits(server: Server, query: str) -> list[dict[str, Any]]:
    return server.get("/api/knowledge/search", q=query)["hits"]


def test_f145_reports_and_documents_are_found_in_a_plugin_s_store_and_go_from_it(
    own: Serving, ear: Trial, model: ScriptedModel
) -> None:
    model.rules(WORK)
    server = with_second(own, ear)
    session = server.post("/api/sessions")["id"]
    job = server.spawn(session, "work")["id"]
    server.wait(lambda: server.job(job)["indexed"])
    assert [hit["job_id"] for hit in hits(server, "zyzzyva")] == [job]
    assert server.ask("plugin", "find zyzzyva", skill="trial") == "1 hits"
    server.post("/api/knowledge/documents", name="okapi.md", text="# Okapi\n\nIt has stripes.")
    (okapi,) = [one for one in server.get("/api/knowledge/documents")["documents"] if one["name"] == "okapi.md"]
    assert server.http.delete(f"/api/knowledge/documents/{okapi['id']}").status_code == 204
    assert hits(server, "stripes") == []
    assert server.http.delete(f"/api/sessions/{session}").status_code == 202
    server.wait(lambda: hits(server, "zyzzyva") == [])
    status = server.get("/api/status")
    assert status["problems"] == [] and status["stores"]["knowledge"]["documents"] > 0
    assert not (server.data / "knowledge.db").exists()


def test_s84_while_it_fails_nothing_is_said_to_be_not_found_and_reports_come_in_later(
    own: Serving, ear: Trial, model: ScriptedModel
) -> None:
    model.rules(WORK)
    server = with_second(own, ear)
    ear.open("broken")
    job = server.spawn(server.post("/api/sessions")["id"], "work")["id"]
    server.wait(lambda: server.job(job)["notified"])  # its chat is told all the same
    assert not server.job(job)["indexed"]
    refused = server.http.get("/api/knowledge/search", params={"q": "zyzzyva"})
    assert refused.status_code == 503 and "secret" not in refused.text
    assert any("The knowledge store cannot be read" in line for line in server.get("/api/status")["problems"])
    ear.open("mended")
    server.wait(lambda: server.job(job)["indexed"])
    assert [hit["job_id"] for hit in hits(server, "zyzzyva")] == [job]


@pytest.mark.parametrize(
    ("adds", "problem"),
    [
        ("second,shut", "The knowledge backend second cannot be opened (error"),
        ("breaks", "The knowledge backend second is not there"),
    ],
)
def test_s84_one_that_is_not_there_is_named_and_takes_nothing_down(
    own: Serving, ear: Trial, adds: str, problem: str
) -> None:
    folder: dict[str, Any] = {
        "TRIAL_FOLDER": str(ear.folder),
        "OUTRIDER_KNOWLEDGE": "second",
        "OUTRIDER_PROFILES": "chat",
    }
    server = own("--no-worker", toml="", TRIAL=adds, **folder)
    assert any(line.startswith(problem) for line in server.get("/api/status")["problems"])
    assert server.http.get("/api/knowledge/search", params={"q": "zyzzyva"}).status_code == 503
    assert server.get("/api/sessions")["sessions"] == []


def test_s84_a_name_that_nobody_adds_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(
        BadSetting, match=r"knowledge \(OUTRIDER_KNOWLEDGE\): no plugin adds 'nosuch'; there are: store"
    ):
        build(load({"data": str(tmp_path), "knowledge": "nosuch"}, {}))
