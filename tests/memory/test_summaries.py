"""A chat that has fallen quiet is summarized: once, of what its user and the agent said, and of nothing that a worker wrote."""

import logging

import pytest

from tests.memory.users import User

SUMMARIZE = "^Summary of a chat session"


def test_a_quiet_chat_is_summarized_and_recalled_by_that(user: User) -> None:
    """F130. One model call; what was said stands in it escaped; its cost is the session's, under a cause of its own."""
    user.model.rules([{"last_user": SUMMARIZE, "text": "They chose a pump-51."}])
    user.ask("pumps", "Which <pump-51> do I want?")
    user.settled()
    assert user.asked_for("Summary", "-51") == [], "it is not quiet yet"
    user.fall_quiet()
    (asked,) = user.asked_for("Summary", "-51")
    assert "User: Which &lt;pump-51&gt; do I want?" in asked and "Agent: ok" in asked
    assert user.kept("summary") == ["They chose a pump-51."]
    assert user.get("/api/sessions/pumps")["usage"]["causes"]["memory"]["requests"] == 1
    user.fall_quiet()
    assert len(user.asked_for("Summary", "-51")) == 1, "nothing has been said since"
    said = user.tool("recall_session", "asked-51", session_id="pumps")
    assert "Summary, made 20" in said and "They chose a pump-51." in said


def test_what_is_said_later_goes_into_the_next_one_and_the_earlier_is_kept_and_left_out(user: User) -> None:
    user.model.rules(
        [
            {"last_user": f"{SUMMARIZE}(?s:.*)earlier-summary", "text": "Second."},
            {"last_user": SUMMARIZE, "text": "First."},
        ]
    )
    user.ask("s", "one-53")
    user.fall_quiet()
    user.ask("s", "two-53")
    user.fall_quiet()
    _, second = user.asked_for("Summary", "-53")
    assert "First." in second and "two-53" in second and "one-53" not in second
    assert [(each["text"], each["in_force"]) for each in user.memories()] == [("First.", False), ("Second.", True)]


def test_only_chats_are_summarized_told_by_their_row_and_never_by_their_id(user: User) -> None:
    """F130; and one in which no model was asked costs none."""
    user.post("/api/sessions", id="private", incognito=True)
    user.ask("private", "incognito-57")
    user.ask("echoed", "echoed-57", skill="echo")
    user.ask("x:background:y", "chat-57")
    job = user.spawn("x:background:y", "in-the-job-57")
    user.wait(lambda: user.job(job["id"])["notified"])
    user.fall_quiet()
    (asked,) = user.asked_for("Summary", "-57")
    assert "chat-57" in asked
    assert [each["kind"] for each in user.memories()] == ["summary"]


def test_workers_words_are_in_no_summary_fact_or_digest_and_found_as_a_report(user: User) -> None:
    """S74, F134: of notifications there are the jobs' ids; the briefing that quotes a report is left out."""
    user.model.rules(
        [
            {"last_user": "^look", "text": "The user loves mangoes-61."},
            {"last_user": "<task-notification>", "text": "It came back: the user loves mangoes-61."},
        ]
    )
    user.ask("s", "I like pears-61.")
    jobs = [user.spawn("s", f"look {number}", f"job-61-{number}")["id"] for number in range(2)]
    user.wait(lambda: all(user.job(job)["notified"] for job in jobs))
    user.fall_quiet(90_000)
    (summary,), (facts,) = user.asked_for("Summary", "-61"), user.asked_for("Facts", "-61")
    assert "Outrider told of: bg-" in summary and all(job in summary for job in jobs)
    for asked in (summary, facts):
        assert "pears-61" in asked and "mangoes-61" not in asked and "task-notification" not in asked
    assert {one["kind"] for one in user.get("/api/sessions")["sessions"]} == {"chat"}
    user.ask("new", "asked-61")
    (asked,) = user.requests("asked-61")
    assert "pears-61" in asked.text and "mangoes-61" not in asked.text
    assert len(user.get("/api/knowledge/search", q="mangoes-61", source_type="background_report")["hits"]) == 2


def test_of_what_is_not_kept_whole_nothing_is_remembered(user: User) -> None:
    """Answer levels: a turn below `full` goes into no summary, and one that sinks takes the summary with it."""
    user.model.rules([{"last_user": SUMMARIZE, "text": "They spoke of full-67."}])
    user.ask("masked", "masked-67", skill="masked")
    user.ask("both", "full-67")
    low = user.say("both", "masked-67 too", skill="masked")
    user.ended(low)
    user.fall_quiet()
    (asked,) = user.asked_for("Summary", "-67")
    assert "full-67" in asked and "masked-67" not in asked
    assert user.kept("summary") == ["They spoke of full-67."]


def test_an_erased_turn_takes_the_summary_along_and_it_is_made_anew_of_the_rest(user: User) -> None:
    user.model.rules([{"last_user": f"{SUMMARIZE}(?s:.*)regret-71", "text": "regret-71 and more."}])
    user.ask("s", "stays-71")
    regret = user.say("s", "regret-71")
    user.ended(regret)
    user.fall_quiet()
    assert user.kept("summary") == ["regret-71 and more."]
    assert user.http.delete(f"/api/sessions/s/tasks/{regret}").is_success
    assert all("regret" not in memory["text"] for memory in user.memories())
    user.wait(lambda: user.kept("summary") == ["ok"])
    *_, asked = user.asked_for("Summary", "-71")
    assert "stays-71" in asked and "regret-71" not in asked
    assert user.http.delete("/api/sessions/s").is_success
    assert user.memories() == []


def test_what_is_erased_while_the_model_is_asked_is_in_no_summary(user: User) -> None:
    user.model.rules([{"last_user": f"{SUMMARIZE}(?s:.*)regret-73", "text": "regret-73.", "gate": "summarizing"}])
    user.ask("s", "stays-73")
    regret = user.say("s", "regret-73")
    user.ended(regret)
    user.pass_time(2000)
    user.pass_time(61)
    user.model.held_at("summarizing")
    assert user.http.delete(f"/api/sessions/s/tasks/{regret}").is_success
    user.model.open("summarizing")
    user.wait(lambda: user.kept("summary") == ["ok"])
    assert len(user.memories()) == 1


def test_a_summary_that_fails_is_tried_three_times_and_let_go_loudly(
    user: User, caplog: pytest.LogCaptureFixture
) -> None:
    user.model.rules([{"last_user": SUMMARIZE, "status": 500, "text": "said-79 is not to be logged"}])
    user.ask("s", "said-79")
    before = _failures(user, "summary")
    user.pass_time(2000)
    user.pass_time(61)
    for _ in range(2):
        user.pass_pause("summary")
    user.wait(lambda: _failures(user, "summary") == before + 3)
    user.settled()
    assert len(user.asked_for("Summary", "-79")) == 3
    (record,) = [record for record in caplog.records if "given up after 3 tries" in record.getMessage()]
    assert record.levelno == logging.ERROR and "said-79" not in caplog.text
    assert user.memories() == []


def _failures(user: User, kind: str) -> int:
    line = f'outrider_memory_failures_total{{kind="{kind}"}} '
    found = [
        line_.removeprefix(line) for line_ in user.http.get("/metrics").text.splitlines() if line_.startswith(line)
    ]
    return int(found[0]) if found else 0
