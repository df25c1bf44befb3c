"""F046: a level that is stricter at a start than what is stored brings that down, in both stores and in every copy."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.levels.conftest import Serving
from tests.levels.watching import Watch
from tests.support.scripted import ScriptedModel


@dataclass
class Tightened:
    """A server whose profiles became stricter, each in another measure; task ids by profile."""

    watch: Watch
    secret: str
    ended: dict[str, str]
    held: dict[str, str]
    parked: str


def profiles(levels: dict[str, str]) -> str:
    return "".join(
        f'[profiles.{name}]\ndescription = "{name}"\nanswer_level = "{level}"\ntools = ["memory_recall", "ask_user"]\n'
        for name, level in levels.items()
    )


def with_a_past(watch: Watch, model: ScriptedModel, secret: str) -> dict[str, Any]:
    """A server on which a turn was answered, a job was sent out by it and briefed, and one was sent out by a program."""
    errand = {"description": f"for {secret}", "prompt": f"look {secret} up", "subagent_type": "general"}
    model.rules(
        [
            {"last_user": "<task-notification>", "text": f"Briefed about {secret}."},
            {"last_user": "^go", "tool_calls": [call("task", **errand, run_in_background=True)]},
            {"last_user": "^look", "text": f"# Report\n\nIt found {secret} in the attic."},
            {"anywhere": ".", "text": f"Sent out, {secret}."},
        ]
    )
    task = watch.task(f"go for {secret}", session="past", hook=True)
    program = watch.server.post("/api/background", session="past", prompt=f"look {secret} up", description=secret)
    watch.server.wait(lambda: len(jobs := watch.server.jobs("past")) == 2 and all(job["notified"] for job in jobs))
    watch.server.wait(watch.rests)
    return {"task": task, "job": watch.server.job(program["id"])}


def restarted(watch: Watch, **env: str) -> None:
    watch.restart(**env)
    watch.forget()
    watch.server.wait(watch.rests)


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def found(watch: Watch, query: str) -> list[str]:
    hits = watch.server.get("/api/knowledge/search", q=query, session="past")["hits"]
    return [hit["snippet"] for hit in hits]


def test_f046_what_was_kept_whole_is_masked_and_then_goes_as_the_level_sinks_from_start_to_start(
    serving: Serving, model: ScriptedModel, word: str
) -> None:
    secret = f"{word}@example.com"
    watch = serving(own=True, OUTRIDER_LEASE_S="2")
    past = with_a_past(watch, model, secret)
    whole = watch.places(secret)
    assert {"results.artifacts", "messages.text", "checkpoints.content", "jobs.excerpt", "sessions.title"} <= set(whole)
    assert {"events.data", "jobs.prompt"} <= set(whole) and any("file knowledge" in place for place in whole)

    watch.restart(OUTRIDER_ANSWER_LEVEL="redacted")
    restarted(watch)  # which kills it where it stands, with the index behind
    assert watch.places(secret) == []
    task, job = watch.server.task(past["task"]["id"]), watch.server.job(past["job"]["id"])
    assert task["status"] == past["task"]["status"]
    assert task["artifacts"][0]["parts"] == [{"text": "Sent out, ***."}]
    assert task["history"][0]["parts"] == [{"text": "go for ***"}]
    assert job["report"] == "# Report\n\nIt found *** in the attic." and job["indexed"]
    assert len(found(watch, "attic")) == 2
    assert watch.server.get("/api/sessions/past")["title"] == "go for ***"

    restarted(watch, OUTRIDER_ANSWER_LEVEL="none")
    assert watch.places("attic") == [] and watch.places("Briefed about") == [] and watch.places("go for") == []
    task, job = watch.server.task(past["task"]["id"]), watch.server.job(past["job"]["id"])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED" and not task["artifacts"] and not task["history"]
    assert (job["status"], job["report"], job["description"]) == ("completed", "", "")
    assert found(watch, "attic") == []

    restarted(watch, OUTRIDER_ANSWER_LEVEL="full")
    assert not watch.server.task(past["task"]["id"])["artifacts"]  # raised again, it brings nothing back
    model.rules([{"text": f"for {secret}"}])
    assert watch.task("hello")["artifacts"][0]["parts"] == [{"text": f"for {secret}"}]


@pytest.fixture(scope="module")
def tightened(serving: Serving, shared_model: ScriptedModel) -> Tightened:
    """Profiles at `full` with a task of each that has ended, and one that is held; then their levels differ."""
    secret = "canarytightened@example.com"
    shared_model.rules(
        [
            {"last_user": "^ask", "tool_calls": [call("ask_user", question=f"Of {secret}?")]},
            {"last_user": "^go", "text": f"first {secret}", "tool_calls": [call("memory_recall", query=secret)]},
            {"last_tool": ".", "gate": "held", "text": f"Done for {secret}."},
            {"anywhere": ".", "text": f"for {secret}"},
        ]
    )
    names = ["open", "masked", "nothing"]
    levels = {"open": "full", "masked": "redacted", "nothing": "none"}
    watch = serving(
        profiles(dict.fromkeys(names, "full")), OUTRIDER_PROFILES=",".join(["chat", *names]), OUTRIDER_LEASE_S="1"
    )
    ended = {name: watch.task("hello", skill=name)["id"] for name in names}
    held = {name: watch.server.say(f"held-{name}", f"go for {secret}", skill=name) for name in names}
    parked = watch.server.say("parked", f"ask for {secret}", skill="nothing")
    watch.server.wait(lambda: watch.server.get("/api/sessions/parked")["parked"])
    shared_model.wait_for(lambda asked: sum(each.gate == "held" for each in asked) == len(names))
    watch.server.kill()
    (watch.server.data / "outrider.toml").write_text(profiles(levels))
    watch.restart()
    shared_model.open("held")
    for task_id in held.values():
        watch.server.ended(task_id)
    watch.server.wait(watch.rests)
    watch.forget()
    return Tightened(watch, secret, ended, held, parked)


def texts_of(tightened: Tightened, tasks: dict[str, str]) -> dict[str, list[str]]:
    found = {name: tightened.watch.server.task(task_id)["artifacts"] for name, task_id in tasks.items()}
    return {name: [artifact["parts"][0]["text"] for artifact in artifacts] for name, artifacts in found.items()}


def test_f046_a_profile_that_is_stricter_now_brings_down_its_own_ended_tasks_and_no_others(
    tightened: Tightened,
) -> None:
    assert texts_of(tightened, tightened.ended) == {
        "open": [f"for {tightened.secret}"],
        "masked": ["for ***"],
        "nothing": [],
    }


def test_f046_a_task_that_was_running_ends_under_the_level_that_holds_now(tightened: Tightened) -> None:
    """It goes on from what it had; at a level that keeps nothing it fails, whatever it had."""
    assert texts_of(tightened, tightened.held) == {
        "open": [f"Done for {tightened.secret}."],
        "masked": ["Done for ***."],
        "nothing": [],
    }
    lost = tightened.watch.server.task(tightened.held["nothing"])
    assert lost["status"]["state"] == "TASK_STATE_FAILED" and lost["metadata"]["reason"] == "RESULT_NOT_KEPT"


def test_f046_what_a_parked_task_had_asked_is_an_entry_without_words_and_its_end_is_told_once(
    tightened: Tightened,
) -> None:
    """F046: the question's entry is not the answer's, also where neither has a text any more."""
    log = tightened.watch.server.messages("parked")
    assert [(entry["kind"], entry["text"], bool(entry["detail"])) for entry in log] == [
        ("user", "", False), ("agent", "", False), ("agent", "", True),
    ]  # fmt: skip
    assert {entry["reason"] for entry in log} == {"RESULT_NOT_KEPT"}


def test_f046_what_was_brought_down_is_nowhere_any_more(tightened: Tightened) -> None:
    """What the open profile said is; so of the others each cell of their tasks is looked at, and nothing else."""
    mine = {*tightened.ended.values(), *tightened.held.values(), tightened.parked}
    open_ones = {tightened.ended["open"], tightened.held["open"]}
    assert tightened.watch.tasks_that_say(tightened.secret) & mine == open_ones


def test_f046_a_provider_that_is_stricter_now_brings_down_what_it_was_asked_and_nothing_else(
    serving: Serving, model: ScriptedModel, word: str
) -> None:
    """Also where it was the fallback, or did a job's work: who was asked is remembered with each answer."""
    secret = f"{word}@example.com"
    errand = {"description": "an errand", "prompt": "look it up", "subagent_type": "general"}
    second = '[profiles.second]\ndescription = "asks the second provider"\nmodel = "ollama:second"\n'
    watch = serving(second, own=True, OUTRIDER_PROFILES="chat,second")
    model.rules(
        [
            {"last_user": "^go", "tool_calls": [call("task", **errand, run_in_background=True)]},
            {"anywhere": ".", "text": f"for {secret}"},
        ]
    )
    first, other = watch.task("hello"), watch.task("go", skill="second", session="sent")
    (job,) = watch.server.jobs("sent")
    watch.server.wait(lambda: watch.server.job(job["id"])["notified"])
    model.rules([{"status": 503, "headers": {"x-should-retry": "false"}, "times": 1}, {"text": f"for {secret}"}])
    fallen_back = watch.task("again")
    watch.server.stop()
    (watch.server.data / "outrider.toml").write_text(f'{second}[providers.ollama]\nanswer_level = "redacted"\n')
    restarted(watch)
    said = {"first": first["id"], "other": other["id"], "fallen back": fallen_back["id"]}
    texts = {name: watch.server.task(task)["artifacts"][0]["parts"][0]["text"] for name, task in said.items()}
    assert texts == {"first": f"for {secret}", "other": "for ***", "fallen back": "for ***"}
    assert watch.server.job(job["id"])["report"] == "for ***"
