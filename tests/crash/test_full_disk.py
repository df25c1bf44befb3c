"""A disk that is full while the server works: the kernel refuses every byte beyond a quota, from outside, at any moment.

What cannot be stored is not said to be; and once there is room again everything goes on by itself.
"""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.crash.mortal import EndedByItself, Mortal
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel

REPORT, ANSWER, BRIEFING = "The pier stands.", "It is all right.", "The pier has been looked at."
RULES = [
    Rule(last_user="Look after the pier", text=REPORT, gate="work"),
    Rule(last_user="Is it all right", text=ANSWER, gate="answer"),
    Rule(last_user="<task-notification>", text=BRIEFING),
]


@contextmanager
def no_room(server: Mortal) -> Iterator[None]:
    """None of its files grows by a byte: a quota that is used up. Python has a process ignore the signal for it."""
    full = (server.data / "outrider.db-wal").stat().st_size
    before = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (full, before[1]))
    try:
        yield
    finally:
        if server.running:
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, before)


@pytest.fixture
def at_work(mortal: Mortal, scripted: ScriptedModel) -> tuple[str, str]:
    """A turn and a job whose models have been asked: the ids of the turn's task and of the job."""
    scripted.rules(RULES)
    assert mortal.begin()
    turn, job = mortal.say("s", "Is it all right?"), mortal.spawn("s", "Look after the pier.")["id"]
    scripted.held_at("answer")
    scripted.held_at("work")
    return turn, job


def let_both_be_answered(scripted: ScriptedModel) -> None:
    for gate in ("answer", "work"):
        scripted.open(gate)
        scripted.wait_for(lambda asked, gate=gate: [each for each in asked if each.gate == gate and each.answered_at])


def refused(server: Mortal) -> None:
    """What is sent gets an error that says why, and it is the sender's again."""
    said = server.http.post("/api/sessions/s/messages", json={"text": "Is anybody there?", "message_id": "m-full"})
    assert (said.status_code, said.json()["error"]["code"]) == (503, "STORAGE_UNAVAILABLE"), said.text
    message = {"messageId": "m-full-2", "role": "ROLE_USER", "parts": [{"text": "Is anybody there?"}]}
    assert "error" in server.rpc("SendMessage", {"message": message})


def went_well(server: Mortal, turn: str, job_id: str) -> None:
    """Both ended, and each has been told once."""
    server.wait(lambda: server.job(job_id)["notified"] and server.idle())
    job, log = server.job(job_id), server.messages("s")
    assert (job["status"], job["report"], job["attempts"], job["indexed"]) == ("completed", REPORT, 1, True)
    assert [said["text"] for said in log if said["kind"] == "agent"] == [ANSWER, BRIEFING]
    assert [said["job_ids"] for said in log if said["kind"] == "notification"] == [[job_id]]
    assert server.task(turn)["status"]["state"] == "TASK_STATE_COMPLETED"


def test_while_the_disk_is_full_nothing_ends_without_its_result_and_then_no_model_is_asked_again(
    mortal: Mortal, scripted: ScriptedModel, at_work: tuple[str, str]
) -> None:
    turn, job = at_work
    before = mortal.messages("s")
    with no_room(mortal):
        let_both_be_answered(scripted)
        mortal.wait(lambda: mortal.log().count("the storage cannot be written now") >= 4)
        refused(mortal)
        assert mortal.task(turn)["status"]["state"] == "TASK_STATE_WORKING"
        assert mortal.job(job)["status"] == "running"
        assert mortal.messages("s") == before
    went_well(mortal, turn, job)
    assert len(scripted.requests()) == 3  # the turn, the job, the briefing


def test_what_was_killed_on_a_full_disk_goes_on_where_there_is_room(
    mortal: Mortal, scripted: ScriptedModel, at_work: tuple[str, str]
) -> None:
    turn, job = at_work
    with no_room(mortal):
        let_both_be_answered(scripted)
        refused(mortal)
        mortal.kill()
    assert mortal.begin()
    went_well(mortal, turn, job)


def test_who_is_told_to_end_on_a_full_disk_does_so_and_says_why(
    mortal: Mortal, scripted: ScriptedModel, at_work: tuple[str, str]
) -> None:
    """Nothing can be handed back: it is taken over once the leases are out."""
    turn, job = at_work
    with no_room(mortal):
        let_both_be_answered(scripted)
        refused(mortal)
        os.kill(mortal.pid, signal.SIGTERM)
        with pytest.raises(EndedByItself, match="exit code 1"):
            mortal.over(timeout=20)
    assert mortal.log().splitlines()[-1] == "outrider: disk I/O error"
    assert mortal.begin()
    went_well(mortal, turn, job)


def test_a_message_that_was_refused_is_taken_once_there_is_room(mortal: Mortal, scripted: ScriptedModel) -> None:
    scripted.rules([Rule(last_user="Is anybody there", text="Yes.")])
    assert mortal.begin()
    mortal.post("/api/sessions", id="s")
    with no_room(mortal):
        refused(mortal)
    assert mortal.ask("s", "Is anybody there?", message_id="m-full") == "Yes."
    assert [said["kind"] for said in mortal.messages("s")] == ["user", "agent"]
