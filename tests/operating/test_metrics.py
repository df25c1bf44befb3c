"""F171: during a run with faults each figure moves as it should."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.cases.stories import briefing, fan, worker
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.web.test_health import figures


@contextmanager
def broken_index(server: Server) -> Iterator[None]:
    """While it lasts, nothing can be put into the knowledge store."""
    with closing(sqlite3.connect(server.data / "knowledge.db", isolation_level=None)) as stranger:
        stranger.execute("alter table body rename to lost")
        try:
            yield
        finally:
            stranger.execute("alter table lost rename to body")


def moved(server: Server, before: dict[str, float], name: str) -> float:
    return figures(server).get(name, 0) - before.get(name, 0)


def test_f171_the_way_back_of_a_batch_is_seen_in_the_figures(server: Server, model: ScriptedModel) -> None:
    """One member ends and is held, its index fails for a while; the other ends, and the session is woken once."""
    model.rules([*fan("both", "rooks", "crows"), worker("rooks"), worker("crows", gate="crows"), briefing()])
    before = figures(server)
    session = server.post("/api/sessions")["id"]
    with broken_index(server):
        server.say(session, "both")
        server.wait(lambda: moved(server, before, "outrider_index_failures_total") >= 1)
    model.held_at("crows")
    server.wait(lambda: moved(server, before, "outrider_held_batches") == 1)
    held = figures(server)
    assert held["outrider_undelivered"] >= 1 and held["outrider_undelivered_oldest_seconds"] > 0
    assert held['outrider_failed_tries_total{kind="report"}'] > before.get(
        'outrider_failed_tries_total{kind="report"}', 0
    )
    assert held["outrider_nudge_attempts_total"] == before["outrider_nudge_attempts_total"]
    model.open("crows")
    server.wait(lambda: all(job["notified"] for job in server.jobs(session)))
    after = figures(server)
    assert after["outrider_held_batches"] == before["outrider_held_batches"]
    assert after["outrider_nudge_attempts_total"] == before["outrider_nudge_attempts_total"] + 1
    assert {job["indexed"] for job in server.jobs(session)} == {True}


def test_f171_refusals_are_counted_by_reason_at_every_door(server: Server) -> None:
    before = figures(server)
    server.http.post("/api/background", json={"session": "s"})
    server.http.get("/api/background/bg-000000000000")
    server.rpc("GetTask", {"id": "nobody's"})
    server.http.get("/a2a/rest/tasks/nobodys", headers={"A2A-Version": "1.0"})
    found = {
        reason: moved(server, before, f'outrider_refusals_total{{reason="{reason}"}}')
        for reason in ("INVALID", "NOT_FOUND", "TASK_NOT_FOUND")
    }
    assert found == {"INVALID": 1, "NOT_FOUND": 1, "TASK_NOT_FOUND": 2}
