"""A level that sinks while a task runs: each provider has its say before it is asked, and nothing raises it again."""

from typing import Any

import pytest

from tests.levels.conftest import Serving
from tests.support.scripted import ScriptedModel

SECOND_AT = '[providers.ollama]\nanswer_level = "{}"\n'
NO_RETRY = {"x-should-retry": "false"}
FAILS_ONCE = {"status": 503, "headers": NO_RETRY, "times": 1}
CANARY = "canary-7fb1"
CARD = "card-7fb1"
SECRET = "ada.canary@example.com"


def state_of(envelope: dict[str, Any]) -> str:
    return envelope["result"]["task"]["status"]["state"]


@pytest.mark.parametrize("level", ["metadata", "none"])
def test_f045_a_fallback_that_keeps_nothing_is_not_asked_and_nothing_is_kept(
    serving: Serving, scripted: ScriptedModel, level: str
) -> None:
    """What the first provider had said until then goes as well: in its text, in tools, and in a job that was sent out."""
    sends = {"description": f"look {CARD} up", "prompt": f"find {CANARY}", "subagent_type": "general"}
    scripted.rules(
        [
            {
                "last_user": "^go ",
                "tool_offered": "task",
                "text": f"first words {CANARY}",
                "tool_calls": [
                    {"name": "task", "arguments": sends | {"run_in_background": True}},
                    {"name": "task", "arguments": sends | {"prompt": f"in the foreground {CANARY}"}},
                ],
            },
            {"last_user": "<task-notification>", "text": "Briefed."},
            {"last_user": "in the foreground", "text": f"the subagent's {CANARY}"},
            {"last_user": "^find ", "gate": "never", "text": f"the report's {CANARY}"},
            {"last_tool": ".", "status": 503, "headers": NO_RETRY, "times": 1},
            {"anywhere": ".", "text": f"never asked for {CANARY}"},
        ]
    )
    watch = serving(SECOND_AT.format(level))
    told = watch.send(f"go {CANARY}", hook=True)
    task = told["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert task["metadata"]["reason"] == "RESULT_NOT_KEPT"
    assert "privacy settings" in task["status"]["message"]["parts"][0]["text"]
    watch.receiver.wait_for("FAILED")
    (job,) = watch.server.jobs("s")
    watch.server.wait(lambda: watch.server.job(job["id"])["status"] == "failed")
    assert watch.server.job(job["id"])["error"]["reason"] == "RESULT_NOT_KEPT"
    assert [asked.body["model"] for asked in scripted.requests()].count("second") == 0
    assert watch.places(CANARY) == []
    assert watch.places(CARD) == ["events"]  # the card was shown while that was allowed; nothing of it is kept


@pytest.mark.parametrize("level", ["metadata", "none"])
def test_f045_a_provider_that_keeps_nothing_is_not_asked_at_all(
    serving: Serving, scripted: ScriptedModel, level: str
) -> None:
    watch = serving(f'[providers.openai]\nanswer_level = "{level}"\n', OUTRIDER_FALLBACK_MODELS="")
    assert state_of(watch.send(f"hello {CANARY}")) == "TASK_STATE_FAILED"
    assert b"RESULT_NOT_KEPT" in watch.stream(f"hello {CANARY}")
    turn = watch.server.say("s", f"hello {CANARY}")
    assert watch.server.ended(turn)["metadata"]["reason"] == "RESULT_NOT_KEPT"
    assert scripted.requests() == []
    watch.forget_answers()  # until it sank its user was shown his own words
    assert watch.places(CANARY) == []
    assert [entry["text"] for entry in watch.server.messages("s") if entry["role"] == "user"] == [""] * 3


def test_f042_a_fallback_that_masks_makes_all_of_the_task_masked(serving: Serving, scripted: ScriptedModel) -> None:
    """What the first provider said, and what its user had said before, too; later requests do not raise it again."""
    scripted.rules(
        [
            {"last_user": "^go ", "text": f"first {SECRET}", "tool_calls": [recalling(SECRET)], "times": 1},
            {"last_tool": ".", "times": 1, "status": 503, "headers": NO_RETRY},
            {"last_tool": ".", "times": 1, "text": f"second {SECRET}", "tool_calls": [recalling(SECRET)]},
            {"last_tool": ".", "text": f"The answer for {SECRET} is 42."},
        ]
    )
    watch = serving(SECOND_AT.format("redacted"))
    task = watch.send(f"go for {SECRET}", hook=True)["result"]["task"]
    watch.receiver.wait_for("COMPLETED")
    assert task["artifacts"][0]["parts"] == [{"text": "The answer for *** is 42."}]
    assert task["history"][0]["parts"] == [{"text": "go for ***"}]
    assert [asked.body["model"] for asked in scripted.requests()] == ["first", "first", "second", "first"]
    assert watch.places(SECRET) == []
    assert watch.places("answer for *** is 42") != []


def test_f042_a_task_that_no_masking_provider_was_asked_for_stays_whole(
    serving: Serving, scripted: ScriptedModel
) -> None:
    scripted.rules([{"last_user": "once", **FAILS_ONCE}, {"anywhere": ".", "text": f"for {SECRET}"}])
    watch = serving(SECOND_AT.format("redacted"))
    whole = watch.send("hello")["result"]["task"]
    masked = watch.send("once")["result"]["task"]
    assert whole["artifacts"][0]["parts"] == [{"text": f"for {SECRET}"}]
    assert masked["artifacts"][0]["parts"] == [{"text": "for ***"}]


def recalling(query: str) -> dict[str, Any]:
    return {"name": "memory_recall", "arguments": {"query": query}}
