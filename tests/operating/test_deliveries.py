"""`outrider deliveries`: a briefing that no turn could give, and a webhook that nobody answered, again or given up by hand."""

import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from tests.cases.stories import briefing, worker
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from web import cli
from web.cli_views import line

Command = Callable[..., Result]


@pytest.fixture
def run(server: Server, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command against the server."""
    monkeypatch.setenv("OUTRIDER_URL", server.url)
    monkeypatch.delenv("OUTRIDER_TOKEN", raising=False)
    return lambda *words: CliRunner().invoke(cli.app, ["deliveries", *words])


def listed(run: Command, state: str) -> dict[str, dict]:
    shown = run("list", "--state", state, "--json")
    assert shown.exit_code == 0, shown.output
    return {row["id"]: row for row in json.loads(shown.stdout)["deliveries"]}


def test_a_briefing_that_failed_is_discarded_and_told_after_all(
    server: Server, model: ScriptedModel, run: Command
) -> None:
    model.rules([Rule(last_user="<task-notification>", status=400, text="no", times=1), briefing(), worker("wrens")])
    session = server.post("/api/sessions")["id"]
    job = server.spawn(session, "wrens")["id"]
    server.wait(lambda: server.job(job)["delivery"]["attempts"] == 1)
    assert listed(run, "pending")[job]["failed_turns"] == 1 and job not in listed(run, "undeliverable")
    again = run("replay", job)
    assert again.exit_code == 1 and "waits to be told already" in again.stderr
    assert line(run("discard", job).stdout) == f"{job} discarded"
    found = listed(run, "discarded")[job]
    assert (found["discarded_by"], found["last_error"]) == ("local", "Discarded by local.")
    assert server.job(job)["delivery"] == {"state": "undeliverable", "attempts": 1, "last_error": "Discarded by local."}
    assert run("discard", job).exit_code == 1
    assert line(run("replay", job).stdout) == f"{job} pending"
    server.wait(lambda: server.job(job)["notified"])
    assert job in listed(run, "delivered") and run("replay", job).exit_code == 1
    told = [message for message in server.messages(session) if job in message["job_ids"]]
    assert len([message for message in told if message["state"] in (None, "TASK_STATE_COMPLETED", "completed")]) >= 1
    table = run("list", "--state", "delivered").stdout
    assert any(job in row and "delivered" in row for row in table.splitlines())


def test_what_its_user_has_stopped_waits_for_the_next_turn_and_every_view_says_so(
    server: Server, model: ScriptedModel, run: Command
) -> None:
    model.rules([worker("owls", gate="never"), Rule(anywhere="<task-notification>", text="Told."), Rule(text="Hello.")])
    session = server.post("/api/sessions")["id"]
    job = server.spawn(session, "owls")["id"]
    model.held_at("never")
    before = server.get("/api/status")["undelivered"]
    server.post(f"/api/sessions/{session}/stop")
    why = "it is told with the session's next turn"
    server.wait(lambda: why in (server.job(job)["delivery"]["last_error"] or ""))
    assert why in listed(run, "pending")[job]["last_error"]
    after = server.get("/api/status")["undelivered"]
    assert (after["count"], after["at_next_turn"]) == (before["count"], before["at_next_turn"] + 1)
    assert f"outrider_undelivered_at_next_turn {after['at_next_turn']}" in server.http.get("/metrics").text
    (told,) = [each for each in server.get(f"/api/background/{job}/story")["story"] if each["what"] == "may be told"]
    assert why in told["error"]
    server.ask(session, "go on")
    assert server.job(job)["delivery"] == {"state": "delivered", "attempts": 0, "last_error": None}


def test_a_job_says_what_it_failed_with_while_it_is_tried_again(server: Server, model: ScriptedModel) -> None:
    model.rules([Rule(last_user="^finches", status=500, text="no", times=1), worker("finches"), briefing()])
    job = server.spawn(server.post("/api/sessions")["id"], "finches")["id"]
    server.wait(lambda: "500" in (server.job(job)["delivery"]["last_error"] or ""))
    assert server.job(job)["status"] in ("queued", "running")
    server.wait(lambda: server.job(job)["notified"])
    assert server.job(job)["delivery"] == {"state": "delivered", "attempts": 0, "last_error": None}


@pytest.mark.parametrize("odd", ["bg-000000000000", "a/b", "a/b/c", "a/b/1.0", "..", "/"])
def test_an_odd_id_is_nobody_s(run: Command, odd: str) -> None:
    for command in ("replay", "discard"):
        refused = run(command, odd)
        assert refused.exit_code in (1, 2) and len(refused.stderr.splitlines()) == 1, refused.output
    assert run("list", "--state", "lost").exit_code == 2
