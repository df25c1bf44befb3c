"""F135: what of memory was put before a model is on record with its turn, to be listed, and opened as it is stored now."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.memory.users import RETIRED_S, User
from web.cli import app

HARVEST = "^Facts of a chat session"


def uses(user: User, session: str, kind: str = "") -> list[dict[str, Any]]:
    found = user.get(f"/api/sessions/{session}/memory", limit=200)["uses"]
    return [use for use in found if kind in ("", use["kind"])]


def opened(user: User, session: str, use: dict[str, Any]) -> dict[str, Any]:
    return user.get(f"/api/sessions/{session}/memory/{use['id']}")


def test_a_digest_is_on_record_with_the_turn_that_was_given_it(user: User) -> None:
    """With tier and tokens; each page names the next."""
    for number in range(3):
        user.ask(f"s{number}", f"topic-{number}-101", skill="echo")
    task = user.say("new", "asked-101")
    user.ended(task)
    found = uses(user, "new")
    assert {(use["kind"], use["item"], use["task_id"], use["step"]) for use in found} == {
        ("digest", f"s{number}", task, "begin") for number in range(3)
    }
    assert all(use["trust"] == 2 and 5 < use["tokens"] < 30 for use in found)
    assert opened(user, "new", found[-1])["snippet"] == "topic-2-101" and opened(user, "new", found[-1])["stored"]
    page = user.get("/api/sessions/new/memory", limit=2)
    rest = user.get("/api/sessions/new/memory", limit=2, cursor=page["next_cursor"])
    assert [*page["uses"], *rest["uses"]] == found and rest["next_cursor"] == ""


def test_recalled_passages_sessions_and_reports_are_on_record_with_the_call_that_brought_them(user: User) -> None:
    user.model.rules([{"last_user": "^look", "text": "Owls-103 see at night. " * 40}])
    user.ask("s", "hello-103")
    job = user.spawn("s", "look", "owls")["id"]
    user.wait(lambda: user.job(job)["notified"])
    calls = [
        {"name": "memory_recall", "arguments": {"query": "Owls-103"}, "id": "recall"},
        {"name": "open_report", "arguments": {"job_id": job, "offset": 23}, "id": "open"},
        {"name": "recall_session", "arguments": {"session_id": "s"}, "id": "session"},
    ]
    user.model.rules([{"last_user": "asked-103", "tool_calls": calls}, {"last_tool": "", "text": "Told."}])
    task = user.say("asking", "asked-103")
    user.ended(task)
    by_step = {use["step"]: use for use in uses(user, "asking") if use["step"] != "begin"}
    assert {step: (use["kind"], use["task_id"]) for step, use in by_step.items()} == {
        "tool:1:recall": ("passage", task),
        "tool:1:open": ("report", task),
        "tool:1:session": ("session", task),
    }
    assert by_step["tool:1:open"]["item"] == job and by_step["tool:1:open"]["offset"] == 23
    for use in by_step.values():
        snippet = opened(user, "asking", use)["snippet"]
        assert 0 < len(snippet) <= 200
        assert ("hello-103" in snippet) if use["kind"] == "session" else snippet.startswith("Owls-103 see at night.")


def test_what_is_no_longer_stored_says_so_and_is_still_on_record(user: User) -> None:
    user.ask("gone", "topic-107")
    user.ask("new", "asked-107")
    (use,) = uses(user, "new")
    assert user.http.delete("/api/sessions/gone").is_success
    user.ask("gone", "another session of this name")
    found = opened(user, "new", use)
    assert found["stored"] is False and found["snippet"] is None and found["item"] is None
    assert found["tokens"] == use["tokens"]


def test_a_request_that_failed_was_given_it_all_the_same(user: User) -> None:
    user.model.rules([{"last_user": "asked-109", "status": 400, "text": "no"}])
    user.ask("one", "topic-109", skill="echo")
    user.ended(user.say("new", "asked-109"))
    assert [use["item"] for use in uses(user, "new")] == ["one"]


def test_the_record_goes_with_its_turn(user: User) -> None:
    user.ask("one", "topic-113", skill="echo")
    first, second = user.say("new", "asked-113"), user.say("new", "asked-113 again")
    user.ended(second)
    assert [use["task_id"] for use in uses(user, "new")] == [second, first]
    assert user.http.delete(f"/api/sessions/new/tasks/{first}").is_success
    assert [use["task_id"] for use in uses(user, "new")] == [second]


def test_facts_are_on_record_listed_and_can_be_removed(user: User) -> None:
    """Whoever owns them; after that no turn is given them."""
    user.model.rules([{"last_user": f"{HARVEST}(?s:.*)-127", "text": "- They like tea-127."}])
    user.ask("s", "I like tea-127.")
    user.fall_quiet(RETIRED_S)
    (fact,) = user.get("/api/memory")["memories"]
    assert (fact["text"], fact["session"], fact["trust"]) == ("They like tea-127.", "s", 2)
    assert [each["kind"] for each in user.get("/api/memory", kind="summary")["memories"]] == ["summary"]
    user.ask("new", "asked-127")
    (use,) = uses(user, "new", "fact")
    assert use["item"] == fact["id"] and opened(user, "new", use)["snippet"] == "They like tea-127."
    stranger = user.another()
    assert stranger.get("/api/memory")["memories"] == []
    assert stranger.http.delete(f"/api/memory/{fact['id']}").status_code == 404
    assert user.http.delete(f"/api/memory/{fact['id']}").status_code == 204
    assert opened(user, "new", use)["stored"] is False
    user.ask("new", "asked-again-127")
    assert "They like tea-127" not in (user.given("asked-again-127") or "")
    user.ask("s", "more-127")
    user.fall_quiet(RETIRED_S)
    assert not any("I like tea-127" in asked for asked in user.asked_for("Facts", "more-127")), "it was searched before"


def test_the_terminal_lists_and_removes_what_is_remembered(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    user.model.rules([{"last_user": f"{HARVEST}(?s:.*)-131", "text": "- They like tea-131."}])
    user.ask("s", "I like tea-131.")
    user.fall_quiet(RETIRED_S)
    user.ask("new", "asked-131")
    monkeypatch.setenv("OUTRIDER_URL", user.url)
    monkeypatch.setenv("OUTRIDER_TOKEN", user.http.headers["Authorization"].removeprefix("Bearer "))

    def outrider(*command: str) -> str:
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        return done.stdout

    (fact,) = json.loads(outrider("memory", "list", "--json"))["memories"]
    assert fact["text"] == "They like tea-131." and "They like tea-131." in outrider("memory", "list")
    assert "summary" in outrider("memory", "list", "--summaries", "--json")
    kinds = [use["kind"] for use in json.loads(outrider("session", "memory", "new", "--json"))["uses"]]
    assert sorted(kinds) == ["digest", "fact"]
    assert fact["id"] in outrider("session", "memory", "new")
    outrider("memory", "remove", fact["id"])
    assert json.loads(outrider("memory", "list", "--json"))["memories"] == []
