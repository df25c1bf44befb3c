"""Facts about a user: harvested from their own words when a chat is retired, given to later turns, gone with an erase."""

import logging

import pytest

from agent import memory_words
from tests.memory.users import RETIRED_S, User

HARVEST = "^Facts of a chat session"
DAY = 86_400


def test_facts_are_harvested_from_the_user_s_words_alone_and_given_to_later_turns(user: User) -> None:
    """F132, F136: with date, source and trust; escaped."""
    user.model.rules(
        [
            {
                "last_user": f"{HARVEST}(?s:.*)-81",
                "text": "Here they are:\n- Their boat is the <Erna>-81.\n- They like tea-81.\nnone",
            },
            {"last_user": "call my boat", "text": "agent-words-81"},
        ]
    )
    user.ask("boats", "I call my boat Erna-81.")
    user.fall_quiet()
    assert user.asked_for("Facts", "-81") == [], "it is not retired yet"
    user.fall_quiet(RETIRED_S)
    (asked,) = user.asked_for("Facts", "-81")
    assert "User: I call my boat Erna-81." in asked and "agent-words-81" not in asked
    user.ask("new", "asked-81")
    block = user.given("asked-81") or ""
    (fact,) = [line for line in block.splitlines() if "Erna" in line and line.startswith("- Their")]
    assert fact.startswith("- Their boat is the &lt;Erna&gt;-81. (20") and fact.endswith(
        "from session boats, trust 2: an agent's work)"
    )
    assert "- They like tea-81." in block
    user.ask("later", "asked-later-81", skill="masked")
    stranger = user.another()
    stranger.ask("theirs", "asked-elsewhere-81")
    assert stranger.given("asked-elsewhere-81") is None


def test_a_fact_takes_the_place_of_what_it_replaces_and_what_is_known_is_not_written_twice(user: User) -> None:
    """What was superseded is kept and left out. F132."""
    user.model.rules(
        [
            {
                "last_user": f"{HARVEST}(?s:.*)known(?s:.*)-83",
                "text": "- They live in Bern-83. [replaces 1]\n- they like TEA-83",
            },
            {"last_user": f"{HARVEST}(?s:.*)-83", "text": "- They like tea-83.\n- They live in Rome-83."},
        ]
    )
    user.ask("s", "I live in Rome-83.")
    user.fall_quiet(RETIRED_S)
    assert set(user.kept("fact")) == {"They like tea-83.", "They live in Rome-83."}
    user.ask("s", "asked-83")
    first = [
        line[2:].partition(" (")[0] for line in (user.given("asked-83") or "").splitlines() if line.startswith("- They")
    ]
    user.ask("s", "I live in Bern now-83.")
    user.fall_quiet(RETIRED_S)
    _, second = user.asked_for("Facts", "-83")
    assert "<known>" in second and "Bern now-83" in second and "I live in Rome-83" not in second
    assert set(user.kept("fact")) == {first[1], "They live in Bern-83."}
    assert [each["text"] for each in user.memories() if each["kind"] == "fact" and not each["in_force"]] == [first[0]]


def test_of_a_workers_an_incognito_an_ordinary_and_an_oddly_named_chat_the_last_two_are_harvested(user: User) -> None:
    """F132, by the row's kind and flag."""
    user.post("/api/sessions", id="private", incognito=True)
    user.ask("private", "I am incognito-87.")
    user.ask("plain", "I am ordinary-87.")
    user.ask("x:background:y", "I am odd-87.")
    job = user.spawn("plain", "I am a worker-87.")
    user.wait(lambda: user.job(job["id"])["notified"])
    user.fall_quiet(RETIRED_S)
    asked = "\n".join(user.asked_for("Facts", "-87"))
    assert "ordinary-87" in asked and "odd-87" in asked
    assert "incognito-87" not in asked and "worker-87" not in asked


def test_a_harvest_that_fails_keeps_the_turns_for_three_tries_and_then_lets_them_go_loudly(
    user: User, caplog: pytest.LogCaptureFixture
) -> None:
    """F132: past the age limit they are still there while a harvest waits, and gone when it is given up."""
    failing = {"last_user": f"{HARVEST}(?s:.*)-89", "status": 500, "text": "no"}
    user.model.rules([failing | {"times": 2}, failing | {"gate": "third"}])
    user.ask("s", "I am said-89.")
    user.pass_time(RETIRED_S)
    user.pass_time(61)
    user.pass_pause("harvest")
    user.wait(lambda: len(user.asked_for("Facts", "-89")) == 2)
    user.pass_pause("harvest")
    user.model.held_at("third")
    _purged_after(user, 32 * DAY)
    assert user.messages("s")[0]["text"] == "I am said-89."
    user.model.open("third")
    user.wait(lambda: user.http.get("/api/sessions/s").status_code == 404)
    (record,) = [each for each in caplog.records if "harvest" in each.getMessage() and "given up" in each.getMessage()]
    assert record.levelno == logging.ERROR


def test_an_erase_erases_whatever_is_to_be_harvested_and_what_was(user: User) -> None:
    """F132."""
    user.model.rules([{"last_user": f"{HARVEST}(?s:.*)-91", "text": "- They are said-91.", "gate": "harvesting"}])
    user.ask("s", "I am said-91.")
    user.pass_time(RETIRED_S)
    user.pass_time(61)
    user.model.held_at("harvesting")
    assert user.http.delete("/api/sessions/s").is_success
    user.model.open("harvesting")
    user.settled()
    assert user.memories() == [] and len(user.asked_for("Facts", "-91")) == 1


def test_facts_outlive_what_retention_takes_and_summaries_do_not(user: User) -> None:
    user.model.rules([{"last_user": f"{HARVEST}(?s:.*)-93", "text": "- They are said-93."}])
    user.ask("s", "I am said-93.")
    user.fall_quiet(RETIRED_S)
    assert {each["kind"] for each in user.memories()} == {"summary", "fact"}
    _purged_after(user, 32 * DAY)
    user.wait(lambda: user.http.get("/api/sessions/s").status_code == 404)
    assert [each["kind"] for each in user.memories()] == ["fact"]
    user.ask("new", "asked-93")
    assert "They are said-93. (20" in (user.given("asked-93") or "") and "from a session that is gone" in (
        user.given("asked-93") or ""
    )


def _purged_after(user: User, seconds: float) -> None:
    """So much time passes, and the purge that is due then has been done."""
    user.pass_time(seconds)
    due = "select 1 from runs where kind = 'purge' and (state = 'running' or due_at <= :now)"
    user.wait(lambda: not user.rows(due, now=user._now()))


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("none", []),
        ("I write: - nothing", []),
        ("- one.\n* two\n3. three", ["one.", "two"]),
        ("- " + "x" * 500, ["x" * 299 + "…"]),
        ("\n".join(f"- fact {number}" for number in range(30)), [f"fact {number}" for number in range(10)]),
        ("- the same\n- The  SAME!", ["the same"]),
    ],
)
def test_of_an_answer_only_its_items_are_facts_and_they_are_bounded(answer: str, found: list[str]) -> None:
    assert [text for text, _ in memory_words.facts(answer, [], [])] == found


def test_the_offline_model_writes_down_what_was_said_and_nothing_of_its_own() -> None:
    said = "User: Remember that my team is called Kite. What is WAL?\nAgent: WAL is a log. It is long."
    conversation = f"<conversation>\n{said}\n</conversation>"
    assert (
        memory_words.scripted(f"{memory_words.HARVEST}\n\n{conversation}") == "- Remember that my team is called Kite"
    )
    summary = memory_words.scripted(
        f"{memory_words.TURN}\n\n<earlier-summary>\nBefore.\n</earlier-summary>\n\n{conversation}"
    )
    assert summary.splitlines() == ["Before.", "User: Remember that my team is called Kite.", "Agent: WAL is a log."]
