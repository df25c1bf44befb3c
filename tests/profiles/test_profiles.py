"""F019, F056: a profile is a skill of the card, bound to its handler, tools, model, schemas and limits; no other is offered."""

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.a2a import wire
from tests.a2a.wire import COMPLETED, FAILED, message
from tests.support.scripted import Asked, ScriptedModel
from tests.support.server import Server, answer_of
from tests.support.trial import Trial
from web.app import build
from web.settings import BadSetting, load


def refused(server: Server, sent: dict[str, Any], method: str = "SendMessage") -> httpx.Response:
    """The refusal of a message; nothing is stored for it."""
    with wire.nothing_stored(server):
        answer = wire.post(server, method, {"message": sent})
    assert "error" in answer.json()
    return answer


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    """A rule by which the model calls a tool, once."""
    return {"last_user": "^(shout|go)$", "tool_calls": [{"name": tool, "arguments": arguments}], "times": 1}


# --- what is offered ------------------------------------------------------------------------------------------------


def test_f169_the_cards_skills_are_the_profiles_that_are_offered_and_take_work_and_no_others(server: Server) -> None:
    skills = {skill["id"]: skill for skill in server.get("/.well-known/agent-card.json")["skills"]}
    taking_work = [name for name in server.env["OUTRIDER_PROFILES"].split(",") if name != "nothing"]
    assert list(skills) == taking_work and "hidden" not in skills
    assert skills["topic"]["description"] == "Takes a topic."
    assert skills["topic"]["inputModes"] == ["application/json", "text/plain"]
    assert "inputModes" not in skills["trial"] and "outputModes" in skills["gives"]
    assert all(skill["name"] and skill["tags"] for skill in skills.values())


@pytest.mark.parametrize("skill", ["hidden", "nobody", "agent"])
def test_a_skill_that_is_unknown_or_switched_off_is_refused_with_its_cause_and_no_rows(
    server: Server, skill: str
) -> None:
    answer = refused(server, message(skill=skill))
    assert wire.told(answer) == (200, -32602, "INVALID_PARAMS")
    assert "message.metadata.skill" in answer.text and "must be one of chat, echo" in answer.text
    with wire.nothing_stored(server):
        told = server.http.post("/api/sessions/unknown/messages", json={"text": "x", "skill": skill})
    assert told.status_code == 400 and told.json()["error"]["details"]["field"] == "skill"


def test_a_message_names_its_profile_and_a_handler_answers(server: Server) -> None:
    task = wire.send(server, message('echo hello; data {"n": 1}', skill="trial"))
    assert task["status"]["state"] == COMPLETED
    assert task["artifacts"][0]["parts"] == [{"text": "hello"}, {"data": {"n": 1}}]


def test_without_a_name_it_is_chat(server: Server, model: ScriptedModel) -> None:
    model.rules([{"text": "from a model"}])
    assert answer_of(wire.send(server, wire.said("echo hello"))) == "from a model"


def test_a_handler_acts_for_the_owner_of_its_task_in_its_session(server: Server) -> None:
    session = wire.fresh()
    told = json.loads(answer_of(wire.send(server, message("asked", skill="trial", contextId=session))))
    assert told == {"session": session, "owner": "local", "data": None}


def test_a_handlers_answer_is_read_in_its_session_and_streamed_whole(server: Server) -> None:
    session = wire.fresh()
    frames = wire.streamed(server, message("echo one; many 2", skill="trial", contextId=session))
    task = wire.get(server, frames[0]["task"]["id"])
    assert [artifact["parts"][0]["text"] for artifact in task["artifacts"]] == ["one", "artifact 0", "artifact 1"]
    assert wire.replayed(frames)["artifacts"] == task["artifacts"]
    assert len({artifact["artifactId"] for artifact in task["artifacts"]}) == 3
    assert server.messages(session)[-1]["text"] == "one\n\nartifact 0\n\nartifact 1"


def test_nothing_is_a_legitimate_answer(server: Server) -> None:
    task = wire.send(server, message("nothing", skill="trial"))
    assert task["status"]["state"] == COMPLETED and task["artifacts"] == []


def test_a_large_answer_is_kept_whole(server: Server) -> None:
    assert answer_of(wire.send(server, message("big 300000", skill="trial"))) == "x" * 300_000


# --- how a handler ends ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["cycle", "nan", "bytes", "tuple", "deep"])
def test_f032_a_value_that_cannot_be_kept_fails_the_task_and_never_completes_it(server: Server, what: str) -> None:
    """A108: the failed task says so, has its reason in its metadata, and no artifact."""
    task = wire.send(server, message(what, skill="trial"))
    assert task["status"]["state"] == FAILED and task["artifacts"] == []
    assert task["metadata"]["reason"] == "NO_REPORT" and task["status"]["message"]["parts"][0]["text"]


@pytest.mark.parametrize("skill", ["trial", "trial-sync"])
def test_what_a_handler_raises_fails_its_task_without_its_text(server: Server, skill: str) -> None:
    task = wire.send(server, message("boom canary-31", skill=skill))
    assert task["status"]["state"] == FAILED and task["artifacts"] == []
    told = json.dumps({**task, "history": []})
    assert "internal error" in told
    for leaked in ("canary-31", "secret", "RuntimeError", ".py"):
        assert leaked not in told


def test_a_handler_that_runs_too_long_is_ended(own: Callable[..., Server]) -> None:
    server = own(OUTRIDER_TURN_TIMEOUT_S="0.2")
    task = wire.send(server, message("sleep 20", skill="trial"))
    assert task["metadata"] == {"reason": "TIMED_OUT"} and task["status"]["state"] == FAILED


def test_a_handler_is_stopped_where_it_stands_by_a_cancel(server: Server, trial: Trial) -> None:
    task = wire.start(server, message("wait never-opened; note too-late", skill="trial"))
    server.wait(lambda: any(line.startswith(f"began {task['id']}") for line in trial.diary()))
    status = wire.cancel(server, task["id"])["status"]
    assert status["message"]["parts"][0]["text"] == "Canceled by its user."
    trial.open("never-opened")
    assert answer_of(wire.send(server, message("echo next", skill="trial", contextId=task["contextId"]))) == "next"
    assert "too-late" not in trial.diary()


def test_one_that_cannot_be_stopped_is_named_in_the_cancels_reply_and_nothing_of_it_is_kept(
    server: Server, trial: Trial
) -> None:
    task = wire.start(server, message("wait slow; echo late", skill="trial-sync"))
    server.wait(lambda: any(line.startswith(f"began {task['id']}") for line in trial.diary()))
    canceled = wire.cancel(server, task["id"])
    assert "cannot be stopped" in canceled["status"]["message"]["parts"][0]["text"]
    trial.open("slow")
    server.wait(lambda: f"ended {task['id']}" in trial.diary())
    assert wire.get(server, task["id"]) == canceled and canceled["artifacts"] == []
    other = server.say(wire.fresh(), "wait slower", skill="trial-sync")
    server.wait(lambda: any(line.startswith(f"began {other}") for line in trial.diary()))
    reply = server.post(f"/api/sessions/{server.task(other)['contextId']}/tasks/{other}/cancel")
    assert reply["state"] == "canceled" and "cannot be stopped" in reply["note"]
    trial.open("slower")


def test_a_server_stops_in_time_while_a_call_cannot_be_stopped(own: Callable[..., Server], trial: Trial) -> None:
    server = own(offered="trial-sync", OUTRIDER_SHUTDOWN_GRACE_S="0.1")
    task = wire.start(server, message("wait for-ever-shut", skill="trial-sync"))
    server.wait(lambda: any(line.startswith(f"began {task['id']}") for line in trial.diary()))
    assert server.stop(20) == 0


def test_a_handler_that_is_killed_is_run_again_from_its_start(own: Callable[..., Server], trial: Trial) -> None:
    server = own(OUTRIDER_LEASE_S="0.5")
    task = wire.start(server, message("note started; wait restart; echo done", skill="trial"))
    server.wait(lambda: "started" in trial.diary())
    server.kill()
    trial.open("restart")
    server.start()
    assert answer_of(server.ended(task["id"])) == "done"
    assert trial.diary().count("started") >= 2


# --- what a profile gives its model ---------------------------------------------------------------------------------


def asked(model: ScriptedModel, said: str) -> Asked:
    """The one request to the model that a message made; a briefing of another test's may come in between."""
    (found,) = [each for each in model.requests() if each.last_user == said]
    return found


def test_a_profile_has_its_own_instructions_and_only_its_tools(server: Server, model: ScriptedModel) -> None:
    wire.send(server, message("narrowly", skill="narrow"))
    wire.send(server, wire.said("widely"))
    narrow, chat = asked(model, "narrowly"), asked(model, "widely")
    assert narrow.tools == {"memory_recall"} and "Speak like a pirate." in narrow.text
    assert {"task", "shout", "pay"} <= chat.tools and "pirate" not in chat.text


def test_a_plugins_tool_answers_a_model(server: Server, model: ScriptedModel) -> None:
    model.rules([call("shout", text="quiet"), {"last_tool": "QUIET", "text": "heard"}])
    assert answer_of(wire.send(server, wire.said("shout"))) == "heard"


def test_a_plugins_tool_that_fails_tells_the_model_no_more_than_that(server: Server, model: ScriptedModel) -> None:
    model.rules([call("shout", text="boom"), {"last_tool": "^The tool failed", "text": "went on"}])
    assert answer_of(wire.send(server, wire.said("shout"))) == "went on"
    assert all("secret" not in each.text for each in model.requests())


def test_a_plugins_subagent_type_can_be_sent_out(server: Server, model: ScriptedModel) -> None:
    model.rules([{"text": "tried"}])
    session = server.post("/api/sessions", id=wire.fresh())["id"]
    job = server.spawn(session, "try", subagent_type="trialist")
    server.wait(lambda: server.job(job["id"])["status"] == "completed")
    assert next(each for each in model.requests() if "Your role is trialist" in each.text).tools == {"shout"}


def test_a_profile_may_have_a_model_of_its_own(own: Callable[..., Server], model: ScriptedModel) -> None:
    server = own('[profiles.script]\nmodel = "offline"', offered="chat,script")
    wire.send(server, message("What can you do?", skill="script"))
    wire.send(server, wire.said("And you?"))
    assert asked(model, "And you?")
    assert not any("What can you do?" in each.last_user for each in model.requests())


def test_what_a_profile_sends_out_is_worked_and_briefed_as_that_profile(server: Server, model: ScriptedModel) -> None:
    """Else a narrow profile's briefing would have every tool of chat, and keep what its own level masks."""
    spec = {"description": "d", "prompt": "find", "subagent_type": "general", "run_in_background": True}
    model.rules(
        [
            call("task", **spec),
            {"last_user": "^find$", "text": "mail me at ann@example.org"},
            {"last_tool": "", "text": "sent"},
            {"text": "briefed"},
        ]
    )
    session = wire.fresh()
    wire.send(server, message("go", skill="sender", contextId=session))
    (job,) = server.jobs(session)
    server.wait(lambda: server.job(job["id"])["delivery"]["state"] == "delivered")
    assert "ann@example.org" not in server.job(job["id"])["report"] and "mail me at" in server.job(job["id"])["report"]
    (briefing,) = [each for each in model.requests() if job["id"] in each.last_user]
    assert "<task-notification>" in briefing.text and briefing.tools == {"task"} and "Send out." in briefing.text


# --- schemas --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "field", "why"),
    [
        ([{"data": {"topic": "canary-too-long"}}], "message.parts[0].data.topic", "must have at most 10 characters"),
        ([{"text": "see"}, {"data": {}}], "message.parts[1].data", "must have topic"),
        ([{"text": "canary"}], "message.parts[0].text", "must be an object"),
    ],
)
@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
def test_input_that_does_not_fit_is_refused_at_its_place_and_its_value_is_not_repeated(
    server: Server, method: str, parts: list[Any], field: str, why: str
) -> None:
    answer = refused(server, message(skill="topic", parts=parts), method)
    assert wire.told(answer) == (200, -32602, "INVALID_PARAMS")
    violation = wire.error(answer)["data"][1]["fieldViolations"][0]
    assert violation == {"field": field, "description": why} and "canary" not in answer.text


def test_input_that_fits_reaches_the_handler_as_data(server: Server) -> None:
    as_data = message(skill="topic", parts=[{"text": "asked"}, {"data": {"topic": "x"}}])
    assert json.loads(answer_of(wire.send(server, as_data)))["data"] == {"topic": "x"}
    task = wire.send(server, message('{"topic": "x"}', skill="topic"))
    assert task["status"]["state"] == COMPLETED, "a text that spells it is taken for it"
    told = server.http.post("/api/sessions/by-api/messages", json={"text": "hello", "skill": "topic"})
    assert told.status_code == 400 and told.json()["error"]["details"]["field"] == "text"


def test_a31_a_media_type_that_the_skill_does_not_list_is_refused(server: Server) -> None:
    sent = message(skill="topic", parts=[{"text": '{"topic": "x"}', "mediaType": "text/markdown"}])
    answer = refused(server, sent)
    assert wire.told(answer) == (200, -32005, "CONTENT_TYPE_NOT_SUPPORTED")
    assert wire.info(answer) == {"field": "message.parts[0].mediaType", "supported": "application/json, text/plain"}
    assert wire.send(server, {**sent, "messageId": wire.fresh(), "metadata": {"skill": "trial"}})


@pytest.mark.parametrize("text", ['data {"n": "canary"}', "echo canary", "nothing", 'data {"n": 1}; data {}'])
def test_output_against_the_schema_ends_failed_without_content(server: Server, text: str) -> None:
    task = wire.send(server, message(text, skill="gives"))
    assert task["status"]["state"] == FAILED and task["metadata"]["reason"] == "OUTPUT_REJECTED"
    assert task["artifacts"] == [] and "canary" not in json.dumps({**task, "history": []})
    assert "output_schema" in task["status"]["message"]["parts"][0]["text"]


def test_output_that_fits_is_released(server: Server) -> None:
    task = wire.send(server, message('data {"n": 7}', skill="gives"))
    assert task["artifacts"][0]["parts"] == [{"data": {"n": 7}}]


def test_a_models_text_is_held_to_the_schema_as_the_json_that_it_spells(server: Server, model: ScriptedModel) -> None:
    model.rules([{"text": '{"n": 7}', "times": 1}, {"text": "canary 7"}])
    session = wire.fresh()
    server.post("/api/sessions", id=session)
    with server.http.stream("GET", "/api/events", params={"session": session}) as events:
        lines = events.iter_lines()
        assert answer_of(wire.send(server, message(skill="numbers", contextId=session))) == '{"n": 7}'
        task = wire.send(server, message(skill="numbers", contextId=session))
        heard = ""
        while heard.count("turn.finished") < 2:
            heard += next(lines) + "\n"
    assert task["metadata"]["reason"] == "OUTPUT_REJECTED"
    assert "turn.delta" not in heard and "canary" not in heard + next(lines)


# --- limits and levels ----------------------------------------------------------------------------------------------


def test_f056_a_profile_takes_as_many_open_tasks_as_it_says_whatever_comes_at_once(
    server: Server, trial: Trial
) -> None:
    def one(number: int) -> httpx.Response:
        sent = message("wait few", skill="few")
        return wire.post(server, "SendMessage", {"message": sent, "configuration": {"returnImmediately": True}})

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(one, range(20)))
    taken = [wire.result(answer)["task"]["id"] for answer in answers if "result" in answer.json()]
    turned_away = [answer for answer in answers if "error" in answer.json()]
    assert len(taken) == 3
    assert Counter(map(wire.told, turned_away)) == {(503, -32000, "OPEN_TASKS_LIMIT_REACHED"): 17}
    assert {wire.info(answer)["limit"] for answer in turned_away} == {"profiles.few.max_open_tasks"}
    assert wire.send(server, message("echo other", skill="trial")), "another profile has room of its own"
    trial.open("few")
    for task_id in taken:
        server.ended(task_id)
    assert answer_of(wire.send(server, message("echo again", skill="few"))) == "again"


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
@pytest.mark.parametrize("at_once", [True, False])
def test_f044_a_profile_that_can_keep_no_result_is_refused_before_anything_is_created(
    server: Server, method: str, at_once: bool
) -> None:
    params = {"message": message(skill="nothing"), "configuration": {"returnImmediately": at_once}}
    with wire.nothing_stored(server):
        answer = wire.post(server, method, params)
        told = server.http.post("/api/sessions/none/messages", json={"text": "x", "skill": "nothing"})
    assert wire.told(answer) == (200, -32004, "RESULT_NOT_STORABLE")
    assert told.status_code == 422 and told.json()["error"]["code"] == "RESULT_NOT_STORABLE"


def test_f044_it_says_so_already_at_the_start(server: Server) -> None:
    (problem,) = server.get("/api/status")["problems"]
    assert problem.startswith("RESULT_NOT_STORABLE: the profile nothing takes no work") and problem in server.log()
    assert server.http.get("/readyz").status_code == 200


def test_f042_an_installation_that_keeps_nothing_takes_no_work_in_any_profile(own: Callable[..., Server]) -> None:
    server = own("[profiles.p]\nanswer_level = 'full'", offered="chat,p", OUTRIDER_ANSWER_LEVEL="none")
    for skill in ("chat", "p"):
        assert wire.told(refused(server, message(skill=skill)))[2] == "RESULT_NOT_STORABLE"


def test_f043_at_redacted_a_handlers_answer_is_masked_and_otherwise_whole(server: Server) -> None:
    filler = "word " * 3000
    task = wire.send(server, message(f"echo ann@example.org {filler}end", skill="masked"))
    text = answer_of(task)
    assert "ann@example.org" not in json.dumps(task) and len(text) > 15_000 and text.endswith("word end")


def test_a_plugins_redactor_says_what_is_masked(own: Callable[..., Server]) -> None:
    server = own("[profiles.masked]\nhandler = 'trial'\nanswer_level = 'redacted'", "masked", TRIAL="redactor")
    task = wire.send(server, message("echo say hush now", skill="masked"))
    assert answer_of(task) == "say [quiet] now" and "say hush" not in json.dumps(task)


# --- what cannot be used --------------------------------------------------------------------------------------------


def test_a_table_that_means_nothing_stops_the_start_with_one_line(own: Callable[..., Server]) -> None:
    server = own("[profiles.p]\nhandler = 'nobody'", start=False)
    with pytest.raises(AssertionError, match="it ended with 2 instead"):
        server.start()
    (line,) = [line for line in server.log().splitlines() if line.startswith("outrider:")]
    assert line.startswith("outrider: profiles.p.handler: there is no handler 'nobody'; there are agent, echo, trial")


def test_a_level_for_nobody_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "outrider.toml").write_text("[providers.opanai]\nanswer_level = 'none'")
    with pytest.raises(BadSetting, match=r"providers\.opanai: there is no such provider"):
        build(load({"data": str(tmp_path)}, {}))


def test_a_broken_plugin_is_named_and_its_profile_takes_no_work_while_all_else_does(own: Callable[..., Server]) -> None:
    server = own("[profiles.p]\nhandler = 'lost'", offered="echo,p,trial", TRIAL="breaks")
    problems = server.get("/api/status")["problems"]
    assert any(line.startswith("The plugin trial (outrider_trial:register) is not used: ") for line in problems)
    assert any(line.startswith("The profile p takes no work") for line in problems)
    assert all(line in server.log() for line in problems)
    answer = refused(server, message(skill="p"))
    assert wire.told(answer) == (200, -32004, "UNSUPPORTED_OPERATION")
    assert answer_of(wire.send(server, message("still here"))) == "still here"
    assert server.http.get("/readyz").status_code == 200


def test_a_task_whose_profile_is_gone_after_a_restart_ends_and_says_so(own: Callable[..., Server]) -> None:
    server = own(OUTRIDER_LEASE_S="0.5")
    task = wire.start(server, message("wait never-comes", skill="trial"))
    server.kill()
    (server.data / "outrider.toml").write_text("")
    server.env |= {"OUTRIDER_PROFILES": "chat"}
    server.start()
    ended = server.ended(task["id"])
    assert ended["metadata"]["reason"] == "INTERRUPTED"
    assert "no profile trial any more" in ended["status"]["message"]["parts"][0]["text"]
