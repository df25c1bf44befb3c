"""F050: where a guard is installed, nothing of an answer leaves before all of it has passed, and nothing of one that has not."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from tests.a2a import wire
from tests.a2a.wire import COMPLETED, FAILED, message
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of

CANARY = "canary-4471"


def told_of(server: Server, task: dict[str, Any]) -> str:
    """All that is served of a task but what its user said: Get, its session's log, the events since, the log file."""
    served = {**wire.get(server, task["id"]), "history": []}
    log = [entry for entry in server.messages(task["contextId"]) if entry["kind"] != "user"]
    return json.dumps([served, log]) + server.log()


def rejected(server: Server, task: dict[str, Any]) -> None:
    """It failed as rejected, and what it would have said is nowhere."""
    assert task["status"]["state"] == FAILED and task["metadata"]["reason"] == "OUTPUT_REJECTED"
    assert task["artifacts"] == [] and CANARY not in told_of(server, task)
    with closing(sqlite3.connect(server.data / "outrider.db")) as stranger:
        query = "select count(*) from checkpoints where task_id = ?"
        assert stranger.execute(query, (task["id"],)).fetchone() == (0,)


@pytest.mark.parametrize("last", ["forbidden", "explode"])
def test_a_model_whose_last_word_is_refused_leaves_no_byte_of_its_answer(
    guarded: Server, model: ScriptedModel, last: str
) -> None:
    """Seen by a client that streams, by a console that listens, and by whoever looks afterwards."""
    model.rules([{"text": f"{CANARY} and then, at last, {last}"}])
    session = wire.fresh()
    guarded.post("/api/sessions", id=session)
    with guarded.http.stream("GET", "/api/events", params={"session": session}) as events:
        lines = events.iter_lines()
        frames = wire.streamed(guarded, wire.said("speak", contextId=session))
        heard = ""
        while "turn.finished" not in heard:
            heard += next(lines) + "\n"
        heard += next(lines)
    assert [next(iter(frame)) for frame in frames] == ["task", "statusUpdate", "statusUpdate"]
    assert CANARY not in json.dumps(frames) + heard and "turn.delta" not in heard
    rejected(guarded, wire.get(guarded, frames[0]["task"]["id"]))


def test_what_passes_is_one_artifact_after_statuses_only(guarded: Server, model: ScriptedModel) -> None:
    model.rules([{"text": "a fine text"}])
    frames = wire.streamed(guarded, wire.said("speak"))
    assert [next(iter(frame)) for frame in frames] == ["task", "statusUpdate", "artifactUpdate", "statusUpdate"]
    assert answer_of(wire.replayed(frames)) == "a fine text"


def test_a_handlers_answer_is_guarded_over_all_its_artifacts_and_its_data(guarded: Server) -> None:
    for text in (
        f"echo {CANARY}; echo forbidden",
        f'data {{"{CANARY}": "forbidden"}}',
        f"fragment {CANARY}; echo forbidden",
    ):
        rejected(guarded, wire.send(guarded, message(text, skill="trial")))
    assert wire.send(guarded, message("echo fine", skill="trial"))["status"]["state"] == COMPLETED


def test_pieces_are_held_back(guarded: Server) -> None:
    frames = wire.streamed(guarded, message("fragment one; fragment two", skill="trial"))
    assert [next(iter(frame)) for frame in frames] == ["task", "statusUpdate", "artifactUpdate", "statusUpdate"]


def test_the_rule_is_named_where_the_guard_names_one(guarded: Server) -> None:
    task = wire.send(guarded, message("echo no go", skill="trial"))
    assert "(no-go)" in task["status"]["message"]["parts"][0]["text"]


def test_a_question_is_guarded_like_an_answer(guarded: Server) -> None:
    rejected(guarded, wire.send(guarded, message(f"ask {CANARY} forbidden?", skill="trial")))
    parked = wire.send(guarded, message("ask Which?", skill="trial"))
    assert parked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    wire.cancel(guarded, parked["id"])


def test_a_profile_can_do_without(guarded: Server) -> None:
    assert answer_of(wire.send(guarded, message("echo forbidden", skill="free"))) == "forbidden"


def test_a_jobs_report_is_guarded_and_its_route_has_nothing(guarded: Server, model: ScriptedModel) -> None:
    model.rules([{"last_user": "dig", "text": f"{CANARY} is forbidden"}, {"text": "briefed"}])
    session = guarded.post("/api/sessions", id=wire.fresh())["id"]
    job = guarded.spawn(session, "dig")
    guarded.wait(lambda: guarded.job(job["id"])["status"] == "failed")
    ended = guarded.job(job["id"])
    assert ended["error"]["reason"] == "OUTPUT_REJECTED" and not ended["report"] and not ended["partial"]
    assert CANARY not in json.dumps(ended) + guarded.http.get(f"/api/background/{job['id']}/report").text
    assert guarded.get("/api/knowledge/search", q=CANARY)["hits"] == []


def test_what_a_turn_would_send_out_is_guarded_before_its_user_sees_it(guarded: Server, model: ScriptedModel) -> None:
    spec = {"description": CANARY, "prompt": "a forbidden thing", "subagent_type": "general", "run_in_background": True}
    call = {"last_user": "^go$", "tool_calls": [{"name": "task", "arguments": spec}], "times": 1}
    model.rules([call, {"last_tool": "OUTPUT_REJECTED", "text": "nothing went out"}])
    session = wire.fresh()
    assert answer_of(wire.send(guarded, wire.said("go", contextId=session))) == "nothing went out"
    assert guarded.jobs(session) == []


def test_a_text_that_broke_off_has_passed_no_guard_and_is_not_kept(guarded: Server, model: ScriptedModel) -> None:
    model.rules([{"text": CANARY, "finish_reason": "length"}])
    task = wire.send(guarded, wire.said("speak"))
    assert task["status"]["state"] == FAILED and task["metadata"]["reason"] == "OUTPUT_LIMIT"
    assert CANARY not in told_of(guarded, task)


def test_a_guard_that_refuses_everything_refuses_the_built_in_profiles_too(own: Callable[..., Server]) -> None:
    server = own(offered="echo", TRIAL="guard-no")
    assert wire.send(server, message(CANARY))["metadata"]["reason"] == "OUTPUT_REJECTED"
