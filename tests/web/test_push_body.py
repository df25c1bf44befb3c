"""What a webhook is sent is never larger than 256 KiB; what is left out of it says so, and a question goes last."""

import json
from typing import Any

import pytest

from web import push_body
from web.push_body import LIMIT

PLACE = {"taskId": "t", "contextId": "c"}
KILO = 1024


def artifact(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = {"artifactId": "a-1", "name": "answer", "parts": list(parts), **more}
    return {"artifactUpdate": {**PLACE, "artifact": made, "lastChunk": True}}


def status(state: str, parts: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"state": f"TASK_STATE_{state}", "timestamp": "2026-11-30T12:00:00.123Z"}
    if parts:
        told["message"] = {"messageId": "m", "role": "ROLE_AGENT", "parts": parts, "metadata": {"question": "digest"}}
    return {"statusUpdate": {**PLACE, "status": told, **more}}


def sent(event: dict[str, Any]) -> dict[str, Any]:
    made = push_body.body(event)
    assert len(made) <= LIMIT
    return json.loads(made)


@pytest.mark.parametrize(
    "event",
    [
        artifact({"text": "whole \u00fc \u2028"}),
        status("WORKING"),
        status("FAILED", [{"text": "why"}], metadata={"reason": "R"}),
    ],
)
def test_what_fits_goes_out_as_it_is(event: dict[str, Any]) -> None:
    assert sent(event) == event


def test_of_a_failed_task_what_it_left_goes_before_why_it_failed() -> None:
    """F087."""
    left = {"text": "x" * LIMIT, "metadata": {"partial": True}}
    update = sent(status("FAILED", [{"text": "why"}, left], metadata={"reason": "R"}))["statusUpdate"]
    why, told = update["status"]["message"]["parts"]
    assert why == {"text": "why"} and "Left out here" in told["text"] and update["metadata"] == {"reason": "R"}
    assert update["status"]["message"]["metadata"]["withheld"]["limit"] == LIMIT


def test_the_limit_counts_bytes_and_takes_exactly_so_many() -> None:
    """F087."""
    around = len(push_body.body(artifact({"text": ""})))
    fits = artifact({"text": "x" * (LIMIT - around)})
    assert len(push_body.body(fits)) == LIMIT and sent(fits) == fits
    assert sent(artifact({"text": "x" * (LIMIT - around + 1)})) != fits
    assert "withheld" in json.dumps(sent(artifact({"text": "\u20ac" * (LIMIT // 3)})))


@pytest.mark.parametrize(
    "part",
    [{"text": "x" * 1_000_000}, {"data": {"rows": ["x" * 100] * 10_000}}, {"raw": "QUJD" * 250_000}],
    ids=["text", "data", "raw"],
)
def test_a_large_artifact_becomes_a_marker_with_reason_and_size(part: dict[str, Any]) -> None:
    """F087."""
    event = artifact(part, metadata={"made_by": "x"})
    before = json.dumps(event)
    update = sent(event)["artifactUpdate"]
    withheld = update["artifact"]["metadata"]["withheld"]
    assert withheld["reason"] == "TOO_LARGE" and withheld["bytes"] > 1_000_000 and withheld["limit"] == LIMIT
    assert update["artifact"]["artifactId"] == "a-1" and update["taskId"] == "t" and update["lastChunk"] is True
    assert "GetTask" in update["artifact"]["parts"][0]["text"]
    assert json.dumps(event) == before, "what is stored is not touched"


def test_a_large_message_of_an_end_becomes_a_marker_and_the_state_stays() -> None:
    """F087."""
    told = sent(status("FAILED", [{"text": "x" * 400 * KILO}], metadata={"reason": "MODEL_FAILED"}))["statusUpdate"]
    assert told["status"]["state"] == "TASK_STATE_FAILED"
    assert told["status"]["message"]["metadata"]["withheld"]["bytes"] > 400 * KILO


def test_a_question_outlasts_metadata_forms_and_details() -> None:
    """F087: a pending question is kept longer than the rest."""
    question = {"text": "Which of the two? " + "y" * 100 * KILO}
    form = {"data": {"schema": "x" * 300 * KILO}}
    event = status("INPUT_REQUIRED", [question, form], metadata={"note": "z" * 300 * KILO})
    message = sent(event)["statusUpdate"]["status"]["message"]
    assert message["parts"][0] == question
    assert message["metadata"]["question"] == "digest" and message["metadata"]["withheld"]["reason"] == "TOO_LARGE"
    assert sent(event)["statusUpdate"]["metadata"]["withheld"]["bytes"] > 300 * KILO


def test_only_the_update_s_metadata_goes_when_that_is_enough() -> None:
    form = {"data": {"schema": "x" * 100 * KILO}}
    event = status("AUTH_REQUIRED", [{"text": "Sign in."}, form], metadata={"note": "z" * 300 * KILO})
    assert sent(event)["statusUpdate"]["status"]["message"]["parts"] == [{"text": "Sign in."}, form]


@pytest.mark.parametrize("letter", ["y", "\u20ac", "\U0001f600", "\x01"])
def test_of_a_question_that_is_too_large_by_itself_the_beginning_stays(letter: str) -> None:
    """F087."""
    event = status("INPUT_REQUIRED", [{"text": "Which one? " + letter * 300 * KILO}])
    message = sent(event)["statusUpdate"]["status"]["message"]
    assert message["parts"][0]["text"].startswith("Which one? " + letter * 10_000)
    assert message["metadata"]["question"] == "digest" and message["metadata"]["withheld"]["bytes"] > 300 * KILO
