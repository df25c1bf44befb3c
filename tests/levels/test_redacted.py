"""F043, F051: at `redacted` all that is stored, served, indexed and sent is masked, and nothing is cut."""

from typing import Any

import pytest

from tests.levels.conftest import Serving
from tests.levels.watching import Watch
from tests.support.scripted import ScriptedModel

AT_REDACTED = {"OUTRIDER_ANSWER_LEVEL": "redacted"}
ADDRESS = "ada.canary@example.com"
KEY = "sk-proj-Canary7fb1Canary7fb1"
TOKEN = "ghp_" + "Canary7fb1" * 4
SECRETS = [ADDRESS, KEY, TOKEN]
SENTENCE = "An ordinary sentence of a long report. "


def long_text() -> str:
    half = SENTENCE * 200
    return f"{half}Write to {ADDRESS} with the key {KEY} and the token {TOKEN}. {half}"


def masked(text: str) -> str:
    for secret in SECRETS:
        text = text.replace(secret, "***")
    return text


def nowhere(watch: Watch) -> None:
    for secret in SECRETS:
        assert watch.places(secret) == []


def test_f043_a_long_result_is_masked_and_otherwise_whole_when_stored_served_and_sent(
    serving: Serving, scripted: ScriptedModel
) -> None:
    scripted.rules([{"text": long_text()}])
    watch = serving(**AT_REDACTED)
    task = watch.send(f"I am {ADDRESS}", hook=True)["result"]["task"]
    watch.stream(f"again, {TOKEN}", session="streamed")
    watch.receiver.wait_for("COMPLETED")
    assert task["artifacts"][0]["parts"] == [{"text": masked(long_text())}]
    assert len(masked(long_text())) > 15_000
    assert watch.server.messages("s")[-1]["text"] == masked(long_text())
    assert watch.places("An ordinary sentence of a long report") != []
    nowhere(watch)


def test_f043_a_jobs_report_is_masked_on_its_card_in_the_index_and_in_the_briefing(
    serving: Serving, scripted: ScriptedModel
) -> None:
    """The excerpt is cut out of the masked text: a secret that a cut runs through is not known as one any more."""
    report = "x" * 40 + f" {TOKEN}\n\n{long_text()}"
    scripted.rules(
        [
            {"last_user": "<task-notification>", "text": f"Briefed, {ADDRESS}."},
            {"last_user": "^look", "text": report},
        ]
    )
    watch = serving(**AT_REDACTED, OUTRIDER_EXCERPT_CHARS="60")
    watch.server.post("/api/sessions", id="s")
    sent = {"prompt": f"look {ADDRESS} up", "description": f"for {ADDRESS}"}
    job = watch.server.post("/api/background", session="s", **sent)
    assert job["description"] == "for ***"
    watch.server.wait(lambda: watch.server.job(job["id"])["notified"])
    told = watch.server.job(job["id"])
    assert told["report"] == masked(report) and told["indexed"]
    (hit,) = watch.server.get("/api/knowledge/search", q="ordinary sentence report", session="s")["hits"]
    assert hit["job_id"] == job["id"]
    assert "x" * 40 in told["excerpt"] and "ghp" not in told["excerpt"]
    nowhere(watch)


def test_f051_tool_output_and_what_a_turn_sends_out_are_masked(serving: Serving, scripted: ScriptedModel) -> None:
    errand = {"description": f"for {ADDRESS}", "prompt": f"look {KEY} up", "subagent_type": "general"}
    scripted.rules(
        [
            {"last_user": "<task-notification>", "text": "Briefed."},
            {
                "last_user": "^go",
                "tool_calls": [
                    call("task", **errand, run_in_background=True),
                    call("task", **errand | {"prompt": "in the foreground"}),
                ],
            },
            {"last_user": "in the foreground", "text": f"found {TOKEN}"},
            {"last_user": "^look", "text": f"found {TOKEN}"},
            {"last_tool": ".", "text": f"Done with {TOKEN}."},
        ]
    )
    watch = serving(**AT_REDACTED)
    task = watch.send("go")["result"]["task"]
    assert task["artifacts"][0]["parts"] == [{"text": "Done with ***."}]
    watch.server.wait(lambda: all(job["notified"] for job in watch.server.jobs("s")))
    nowhere(watch)


def test_f051_why_something_failed_is_masked_too_and_is_not_in_the_log(
    serving: Serving, scripted: ScriptedModel
) -> None:
    scripted.rules([{"status": 400, "text": f"will not write to {ADDRESS}"}])
    watch = serving(**AT_REDACTED, OUTRIDER_FALLBACK_MODELS="")
    task = watch.send("hello")["result"]["task"]
    assert task["metadata"]["reason"] == "MODEL_FAILED"
    assert "will not write to ***" in task["status"]["message"]["parts"][0]["text"]
    nowhere(watch)


def test_f051_live_pieces_of_an_answer_go_out_at_full_alone(serving: Serving, scripted: ScriptedModel) -> None:
    scripted.rules([{"text": "spoken live"}])
    for level, heard in [("full", ["events"]), ("redacted", [])]:
        watch = serving(OUTRIDER_ANSWER_LEVEL=level, OUTRIDER_FALLBACK_MODELS="")
        watch.send("hello")
        watch.server.wait(lambda watch=watch: b"turn.finished" in watch.events)
        assert [place for place in watch.places("spoken live") if place == "events"] == heard


@pytest.mark.parametrize("level", ["full", "redacted"])
def test_a_profiles_level_holds_beside_that_of_the_installation(
    serving: Serving, scripted: ScriptedModel, level: str
) -> None:
    """F042: the strictest of both."""
    scripted.rules([{"text": f"for {ADDRESS}"}])
    toml = '[profiles.open]\ndescription = "all"\nanswer_level = "full"\n'
    toml += '[profiles.careful]\ndescription = "masked"\nanswer_level = "redacted"\n'
    watch = serving(toml, OUTRIDER_PROFILES="chat,open,careful", OUTRIDER_ANSWER_LEVEL=level)
    texts = {skill: text_of(watch.send("hello", skill=skill)) for skill in ("chat", "open", "careful")}
    whole = f"for {ADDRESS}" if level == "full" else "for ***"
    assert texts == {"chat": whole, "open": whole, "careful": "for ***"}


def text_of(envelope: dict[str, Any]) -> str:
    return envelope["result"]["task"]["artifacts"][0]["parts"][0]["text"]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}
