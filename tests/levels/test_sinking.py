"""A level that sinks while a task runs: each provider has its say before it is asked, and nothing raises it again."""

from typing import Any

import pytest

from tests.levels.conftest import Serving
from tests.support.rules import ALWAYS
from tests.support.scripted import ScriptedModel

LEVELS = """
[providers.ollama]
answer_level = "{}"

[profiles.second]
description = "asks the second provider at once"
model = "ollama:second"
"""
NO_RETRY = {"x-should-retry": "false"}
BROKEN: dict[str, Any] = {"status": 503, "headers": NO_RETRY, "times": 1}
LOW = pytest.mark.parametrize("level", ["metadata", "none"])


def fallback_at(serving: Serving, level: str):
    return serving(LEVELS.format(level), OUTRIDER_PROFILES="chat,second")


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


@LOW
def test_f045_a_fallback_that_keeps_nothing_is_not_asked_and_nothing_is_kept(
    serving: Serving, model: ScriptedModel, word: str, level: str
) -> None:
    """What the first provider had said until then goes as well: its text, what tools said, a job that it had sent out."""
    card = f"card {word[::-1]}"
    errand = {"description": card, "prompt": f"find {word}", "subagent_type": "general"}
    model.rules(
        [
            {
                "last_user": "^go ",
                "text": f"first words {word}",
                "tool_calls": [
                    call("task", **errand, run_in_background=True),
                    call("task", **errand | {"prompt": f"in the foreground {word}"}),
                ],
            },
            {"last_user": "<task-notification>", "text": "Briefed."},
            {"last_user": "in the foreground", "text": f"the subagent's {word}"},
            {"last_user": "^find ", "gate": "never", "text": f"the report's {word}"},
            {"last_tool": ".", **BROKEN},
            {"anywhere": ".", "text": f"never asked for {word}"},
        ]
    )
    watch = fallback_at(serving, level)
    task = watch.task(f"go {word}", session=f"errands-{level}", hook=True)
    assert task["status"]["state"] == "TASK_STATE_FAILED" and task["metadata"]["reason"] == "RESULT_NOT_KEPT"
    assert "privacy settings" in task["status"]["message"]["parts"][0]["text"]
    (job,) = watch.server.jobs(f"errands-{level}")
    told = watch.server.wait(lambda: watch.server.job(job["id"])["error"])
    assert told["reason"] == "RESULT_NOT_KEPT"
    assert "second" not in {asked.body["model"] for asked in model.requests()}
    assert watch.places(word) == []
    assert watch.places(card) == ["events"]  # it was shown live while that was allowed, and nothing of it is kept


@LOW
def test_f045_a_provider_that_keeps_nothing_is_not_asked_at_all(
    serving: Serving, model: ScriptedModel, word: str, level: str
) -> None:
    """Blocking, streaming, and by `/api`; the words of its user are not kept either."""
    watch = fallback_at(serving, level)
    session = f"at-all-{level}"
    blocked = watch.task(f"hello {word}", session=session, skill="second")
    assert blocked["metadata"]["reason"] == "RESULT_NOT_KEPT"
    assert b"RESULT_NOT_KEPT" in watch.stream(f"hello {word}", session=session, skill="second")
    turn = watch.server.ended(watch.server.say(session, f"hello {word}", skill="second"))
    assert turn["metadata"]["reason"] == "RESULT_NOT_KEPT"
    assert model.requests() == []
    watch.forget_answers()  # until it sank its user was shown his own words
    assert watch.places(word) == []
    assert [said["text"] for said in watch.server.messages(session) if said["role"] == "user"] == [""] * 3


def test_f042_a_fallback_that_masks_makes_all_of_the_task_masked(
    serving: Serving, model: ScriptedModel, word: str
) -> None:
    """What the first provider and its user had said before, too; a later request to the first does not raise it again."""
    secret = f"{word}@example.com"
    model.rules(
        [
            {"last_user": "^go ", "text": f"first {secret}", "tool_calls": [call("memory_recall", query=secret)]},
            {"last_tool": ".", **BROKEN},
            {"last_tool": ".", "times": 1, "tool_calls": [call("memory_recall", query=secret)]},
            {"last_tool": ".", "text": f"The answer for {secret} is 42."},
        ]
    )
    watch = fallback_at(serving, "redacted")
    task = watch.task(f"go for {secret}", hook=True)
    assert task["artifacts"][0]["parts"] == [{"text": "The answer for *** is 42."}]
    assert task["history"][0]["parts"] == [{"text": "go for ***"}]
    assert [asked.body["model"] for asked in model.requests()] == ["first", "first", "second", "first"]
    assert watch.places(secret) == []
    assert {"results.artifacts", "checkpoints.content", "webhook"} <= set(watch.places("answer for *** is 42"))


def test_f045_a_job_whose_level_sinks_fails_alone_and_its_sender_is_told(
    serving: Serving, model: ScriptedModel, word: str
) -> None:
    """Of the job nothing is kept but what its sender had said; the sender's own turn and its briefing are whole."""
    errand = {"description": "a look", "prompt": "look into it", "subagent_type": "general"}
    model.rules(
        [
            {"last_user": "<task-notification>", "text": "It failed."},
            {"last_user": "^go", "tool_calls": [call("task", **errand, run_in_background=True)]},
            {"last_user": "^look", "text": f"thinking of {word}", "tool_calls": [call("memory_recall", query=word)]},
            {"last_tool": "sent out", "text": "Sent out."},
            {"last_tool": ".", **BROKEN},
        ]
    )
    watch = fallback_at(serving, "metadata")
    turn = watch.task("go", session="sender")
    (job,) = watch.server.jobs("sender")
    watch.server.wait(lambda: watch.server.job(job["id"])["notified"])
    told = watch.server.job(job["id"])
    assert (told["status"], told["error"]["reason"], told["report"]) == ("failed", "RESULT_NOT_KEPT", "")
    assert (told["description"], told["prompt"]) == ("a look", "look into it")
    assert turn["artifacts"][0]["parts"] == [{"text": "Sent out."}]
    assert watch.server.messages("sender")[-1]["text"] == "It failed."
    (notification,) = [asked.last_user for asked in model.requests() if "<task-notification>" in asked.last_user]
    assert 'code="RESULT_NOT_KEPT"' in notification and "<result" not in notification
    assert watch.places(word) == []


@pytest.mark.parametrize(("failures", "kept"), [(0, "whole {}"), (1, "whole ***")], ids=["not asked", "asked"])
def test_f042_only_a_provider_that_is_asked_has_a_say(
    serving: Serving, model: ScriptedModel, word: str, failures: int, kept: str
) -> None:
    secret = f"{word}@example.com"
    model.rules([BROKEN | {"times": failures}, {"text": f"whole {secret}", "times": ALWAYS}])
    task = fallback_at(serving, "redacted").task("hello")
    assert task["artifacts"][0]["parts"] == [{"text": kept.format(secret)}]


def test_f051_live_pieces_of_an_answer_go_out_only_where_nobody_who_may_be_asked_could_make_it_sink(
    serving: Serving, model: ScriptedModel, word: str
) -> None:
    model.rules([{"text": f"spoken {word} live"}])
    for watch, heard in [(serving(), ["events"]), (fallback_at(serving, "redacted"), [])]:
        task = watch.task("hello")
        watch.server.wait(lambda watch=watch, task=task: _finished(watch.events, task["id"]))
        assert [place for place in watch.places(f"spoken {word} live") if place == "events"] == heard


def _finished(events: bytes, task_id: str) -> bool:
    return any(b"turn.finished" in frame and task_id.encode() in frame for frame in events.split(b"\n\n"))
