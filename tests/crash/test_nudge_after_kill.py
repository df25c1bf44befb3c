"""The promise that all of this is for: a job that has ended is told once, and a server that dies before it could tell
it does so after it was started again.
"""

from typing import Any

import pytest

from tests.crash.mortal import Mortal
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel

REPORT = "The ferry leaves at seven from the northern pier."
RULES = [Rule(last_user="When does", text=REPORT), Rule(last_user="<task-notification>", text="It leaves at seven.")]
MOMENTS = {
    "the job has ended": "after terminal.settle 1",
    "its report is indexed": "before reports.done 1",
    "the nudge is due": "after reports.done 1",
    "the nudge is about to be taken": "before a2a_methods.accept 2",
    "the nudge was taken": "after a2a_methods.accept 2",
    "the nudge is about to be noted": "before posts.nudged 1",
    "the briefing has begun": "after turns.begin 2",
    "the briefing is about to be kept": "before terminal.settle 2",
}


def kinds(log: list[dict[str, Any]]) -> list[str]:
    return [said["kind"] for said in log]


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_a_job_that_ended_is_told_once_after_a_kill(mortal: Mortal, scripted: ScriptedModel, moment: str) -> None:
    """F112: kill -9 between settle and nudge, then restart: one briefing, however often it is started again."""
    scripted.rules(RULES)
    assert mortal.begin(moment)
    mortal.post("/api/sessions", id="s")
    sent = mortal.spawn("s", "When does the ferry leave?")
    assert mortal.over(timeout=20), "it was to die"

    assert mortal.begin()
    mortal.wait(lambda: mortal.job(sent["id"])["notified"])
    job, log = mortal.job(sent["id"]), mortal.messages("s")
    assert (job["status"], job["report"], job["attempts"], job["indexed"]) == ("completed", REPORT, 1, True)
    assert kinds(log) == ["nudge", "notification", "agent"]
    assert {said["task_id"] for said in log} == {job["notified_in"]}
    assert [said["job_ids"] for said in log] == [[], [job["id"]], []]
    assert log[-1]["text"] == "It leaves at seven."
    assert [hit["job_id"] for hit in mortal.get("/api/knowledge/search", q="ferry pier")["hits"]] == [job["id"]]

    mortal.kill()
    assert mortal.begin()
    mortal.wait(mortal.idle)
    assert mortal.messages("s") == log
