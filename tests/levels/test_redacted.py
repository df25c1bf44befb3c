"""F043, F051: at `redacted` all that is stored, served, indexed and sent is masked, and nothing is cut."""

import base64
from typing import Any

import pytest

from tests.levels.conftest import Serving
from tests.levels.watching import Watch
from tests.support.scripted import ScriptedModel

SENTENCE = "An ordinary sentence of a long report. "


class Secrets:
    """An address, a key and a token that nobody else has."""

    def __init__(self, word: str) -> None:
        self.address = f"{word}@example.com"
        self.key = f"sk-proj-{word}A1"
        self.token = f"ghp_{word}" + "0a" * 12
        self.all = [self.address, self.key, self.token]

    @property
    def long_text(self) -> str:
        told = f"Write to {self.address} with the key {self.key} and the token {self.token}. "
        return SENTENCE * 200 + told + SENTENCE * 200

    def masked(self, text: str) -> str:
        for secret in self.all:
            text = text.replace(secret, "***")
        return text

    def are_nowhere(self, watch: Watch) -> bool:
        return [watch.places(secret) for secret in self.all] == [[], [], []]


@pytest.fixture
def secrets(word: str) -> Secrets:
    return Secrets(word)


@pytest.fixture
def watch(serving: Serving) -> Watch:
    """An installation at `redacted`, with excerpts of 60 characters."""
    return serving(OUTRIDER_ANSWER_LEVEL="redacted", OUTRIDER_EXCERPT_CHARS="60")


def test_f043_a_long_result_is_masked_and_otherwise_whole_when_stored_served_and_sent(
    watch: Watch, model: ScriptedModel, secrets: Secrets
) -> None:
    model.rules([{"text": secrets.long_text}])
    task = watch.task(f"I am {secrets.address}", session="long", hook=True)
    watch.stream(f"again, {secrets.token}", session="long")
    whole = secrets.masked(secrets.long_text)
    assert len(whole) > 15_000 and whole.count("***") == 3
    assert task["artifacts"][0]["parts"] == [{"text": whole}]
    assert [said["text"] for said in watch.server.messages("long")] == ["I am ***", whole, "again, ***", whole]
    assert {"results.artifacts", "checkpoints.content", "a stream", "webhook"} <= set(watch.places(SENTENCE.strip()))
    assert secrets.are_nowhere(watch)


def test_f043_a_jobs_report_is_masked_on_its_card_in_the_index_and_in_the_briefing(
    watch: Watch, model: ScriptedModel, secrets: Secrets
) -> None:
    """The excerpt is cut out of the masked text: a secret that a cut runs through is not known as one any more."""
    report = f"{'x' * 40} {secrets.token}\n\n{secrets.long_text}"
    model.rules(
        [
            {"last_user": "<task-notification>", "text": f"Briefed, {secrets.address}."},
            {"last_user": "^look", "text": report},
        ]
    )
    watch.server.post("/api/sessions", id="cards")
    errand = {"prompt": f"look {secrets.address} up", "description": f"for {secrets.address}"}
    job = watch.server.post("/api/background", session="cards", **errand)
    assert job["description"] == "for ***"
    watch.server.wait(lambda: watch.server.job(job["id"])["notified"])
    told = watch.server.job(job["id"])
    assert told["report"] == secrets.masked(report) and told["indexed"]
    assert told["excerpt"].startswith("x" * 40) and "ghp" not in told["excerpt"]
    hits = watch.server.get("/api/knowledge/search", q="ordinary sentence", session="cards")["hits"]
    assert [hit["job_id"] for hit in hits] == [job["id"]]
    assert secrets.are_nowhere(watch)


def test_f051_tool_output_and_what_a_turn_sends_out_are_masked(
    watch: Watch, model: ScriptedModel, secrets: Secrets
) -> None:
    errand = {"description": f"for {secrets.address}", "subagent_type": "general"}
    model.rules(
        [
            {"last_user": "<task-notification>", "text": "Briefed."},
            {
                "last_user": "^go",
                "tool_calls": [
                    call("task", **errand, prompt=f"look {secrets.key} up", run_in_background=True),
                    call("task", **errand, prompt="in the foreground"),
                ],
            },
            {"last_user": "in the foreground|^look", "text": f"found {secrets.token}"},
            {"last_tool": ".", "text": f"Done with {secrets.token}."},
        ]
    )
    task = watch.task("go", session="errands")
    assert task["artifacts"][0]["parts"] == [{"text": "Done with ***."}]
    watch.server.wait(lambda: all(job["notified"] for job in watch.server.jobs("errands")))
    assert secrets.are_nowhere(watch)


def test_f051_data_and_files_that_a_client_sends_are_masked(
    watch: Watch, model: ScriptedModel, secrets: Secrets
) -> None:
    message = watch.message("see these", session="parts")
    file = base64.b64encode(f"a file for {secrets.address}".encode()).decode()
    message["parts"] += [
        {"data": {"password": secrets.token, "to": [secrets.address], "n": 1}},
        {"raw": file, "mediaType": "text/plain", "filename": "a.txt"},
    ]
    task = watch.server.rpc("SendMessage", {"message": message})["result"]["task"]
    _, data, kept = task["history"][0]["parts"]
    assert data["data"] == {"password": "***", "to": ["***"], "n": 1}
    assert base64.b64decode(kept["raw"]) == b"a file for ***"
    assert secrets.are_nowhere(watch) and watch.places(file) == []


def test_f051_what_a_failed_turn_left_is_masked_in_its_status_and_in_calls(
    watch: Watch, model: ScriptedModel, secrets: Secrets
) -> None:
    model.rules([{"text": f"Half of it, {secrets.address}", "finish_reason": "length"}])
    task = watch.task("go", hook=True)
    left = {"text": "Half of it, ***", "metadata": {"partial": True}}
    assert task["status"]["message"]["parts"][1:] == [left]
    watch.server.wait(lambda: any(b"Half of it, ***" in call.body for call in watch.calls_of(task["id"])))
    assert secrets.are_nowhere(watch)


def test_f051_why_something_failed_is_masked_and_is_not_in_the_log(
    serving: Serving, model: ScriptedModel, secrets: Secrets
) -> None:
    model.rules([{"status": 400, "text": f"will not write to {secrets.address}"}])
    watch = serving(OUTRIDER_ANSWER_LEVEL="redacted", OUTRIDER_FALLBACK_MODELS="")
    task = watch.task("hello")
    assert task["metadata"]["reason"] == "MODEL_FAILED"
    assert "will not write to ***" in task["status"]["message"]["parts"][0]["text"]
    assert secrets.are_nowhere(watch)


PROFILES = """
[profiles.open]
description = "says that all is kept"
answer_level = "full"

[profiles.careful]
description = "is masked"
answer_level = "redacted"
"""


@pytest.mark.parametrize("level", ["full", "redacted"])
def test_f042_the_strictest_of_installation_and_profile_holds(
    serving: Serving, model: ScriptedModel, secrets: Secrets, level: str
) -> None:
    model.rules([{"text": f"for {secrets.address}"}])
    watch = serving(PROFILES, OUTRIDER_PROFILES="chat,open,careful", OUTRIDER_ANSWER_LEVEL=level)
    kept = f"for {secrets.address}" if level == "full" else "for ***"
    for skill, expected in [("chat", kept), ("open", kept), ("careful", "for ***")]:
        assert watch.task("hello", skill=skill)["artifacts"][0]["parts"] == [{"text": expected}]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}
