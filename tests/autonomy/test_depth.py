"""S79, S55: jobs send jobs out as deep as they may, whichever way; each comes back once, and stops with who sent it out."""

import json
from typing import Any

import pytest

from tests.autonomy.spending import COST, in_front, sums
from tests.cases.stories import (
    assert_told_once,
    background,
    blocks_in,
    briefing,
    briefings,
    calling,
    job,
    news_in,
    notifications,
    sent_out,
    when_quiet,
    when_told,
    worker,
)
from tests.lifecycle.looking import places
from tests.support.rules import Rule
from tests.support.scripted import Asked, ScriptedModel
from tests.support.server import Server
from tests.support.serving import Serving
from tests.support.trial import Trial


@pytest.fixture(scope="module")
def deep(serving: Serving) -> Server:
    """Two levels of jobs."""
    return serving(OUTRIDER_MAX_DEPTH="2")


def sender(prompt: str, *calls: dict[str, Any], then: str = "Sent out.", **how: Any) -> list[Rule]:
    """A worker that makes these calls, and ends."""
    return [
        Rule(last_user=f"^{prompt}$", tool_calls=calls),
        Rule(last_tool="", anywhere=f"(?m)^{prompt}$", not_anywhere="<task-notification>", text=then, **how),
    ]


def spawn(server: Server, session: str, prompt: str) -> str:
    server.ask(session, "hello")
    return server.spawn(session, prompt, subagent_type="sender")["id"]


def requests_of(model: ScriptedModel, prompt: str) -> list[Asked]:
    """The requests of the worker of this prompt, which has a chat's tools."""
    return [asked for asked in model.requests() if asked.messages[1]["content"] == prompt]


def refusals(model: ScriptedModel, prompt: str) -> list[str]:
    """What the tools have said to the worker of this prompt."""
    asked = requests_of(model, prompt)[-1]
    return [message["content"] for message in asked.messages if message["role"] == "tool"]


def test_S79_at_one_level_no_worker_sends_out_by_any_way(server: Server, model: ScriptedModel) -> None:
    """By tools in front and in the background, by the sdk, by A2A: refused, with depth and limit, and nothing is stored."""
    ways = [background("s79 a", "s79 b"), in_front("s79 c"), calling("send", session="s79", prompt="s79 d")]
    model.rules(
        [
            *sender("s79 sends", *ways),
            briefing(),
        ]
    )
    sent = spawn(server, "s79", "s79 sends")
    when_told(server, sent)
    for told in refusals(model, "s79 sends"):
        assert told.startswith("DEPTH_LIMIT: Jobs may be 1 level(s) below a chat, and this would be level 2"), told
    assert json.loads(refusals(model, "s79 sends")[2].partition("yourself. ")[2]) == {"limit": 1, "depth": 2}
    assert [one["id"] for one in server.jobs("s79")] == [sent]

    own = server.task(server.job(sent)["task_id"])["contextId"]
    message = {"messageId": "m-s79", "contextId": own, "role": "ROLE_USER", "parts": [{"text": "go on"}]}
    assert server.rpc("SendMessage", {"message": message})["error"]["code"] == -32602
    body = {"session": own, "prompt": "s79 f"}
    assert server.http.post("/api/background", json=body).status_code in (400, 422)
    assert [one["id"] for one in server.jobs("s79")] == [sent]


def test_S79_what_a_job_sends_out_is_told_to_it_while_it_works(
    deep: Server, model: ScriptedModel, trial: Trial
) -> None:
    """Its end comes between two of the sender's steps, once; the chat is told of the sender alone."""
    model.rules(
        [
            Rule(last_user="^s79 asks$", tool_calls=[background("s79 child")]),
            Rule(last_tool="sent out", anywhere="(?m)^s79 asks$", tool_calls=[calling("dwell", door="s79")]),
            Rule(last_user="<task-notification>", anywhere="(?m)^s79 asks$", text="My child has said it."),
            worker("s79 child", "The child's report."),
            briefing(),
        ]
    )
    sent = spawn(deep, "s79-told", "s79 asks")
    deep.wait(lambda: len(deep.jobs("s79-told")) == 2)
    (child,) = sent_out(deep, "s79-told", "s79 child")
    deep.wait(lambda: deep.job(child["id"])["status"] == "completed" and deep.job(child["id"])["indexed"])
    assert (child["parent"], child["depth"]) == (sent, 2)
    deep.ask("s79-told", "hello again")  # its chat is not told, while there is somebody who waits for it
    assert deep.job(child["id"])["delivery"]["state"] == "pending"
    trial.open("s79")
    when_told(deep, sent)
    when_quiet(deep, "s79-told")
    told = [block["job-id"] for asked in requests_of(model, "s79 asks") for block in news_in(asked)]
    assert told == [child["id"]]
    shown = deep.job(child["id"])
    assert (shown["notified_in"], shown["session"]) == (deep.job(sent)["task_id"], "s79-told")
    assert deep.job(sent)["report"] == "My child has said it." and not notifications(deep, "s79-told", child["id"])
    assert_told_once(deep, "s79-told", sent)
    (hit,) = [
        hit for hit in deep.get("/api/knowledge/search", q="child report")["hits"] if hit["job_id"] == child["id"]
    ]
    assert hit["source"] == "s79-told"

    # F165: erased, it is in no byte of the sender's turn either
    assert places(deep.data, "child's report")
    assert deep.http.delete(f"/api/background/{child['id']}/report").status_code == 202
    deep.wait(lambda: not places(deep.data, "child's report"))
    assert deep.job(sent)["report"] == "My child has said it."


def test_S79_what_ends_after_the_job_that_sent_it_out_is_told_to_the_chat(deep: Server, model: ScriptedModel) -> None:
    model.rules(
        [*sender("s79 leaves", background("s79 one", "s79 two")), worker("s79 (one|two)", gate="late"), briefing()]
    )
    sent = spawn(deep, "s79-left", "s79 leaves")
    when_told(deep, sent)
    children = [one["id"] for one in sent_out(deep, "s79-left", "s79 one", "s79 two")]
    model.open("late")
    when_told(deep, *children)
    when_quiet(deep, "s79-left")
    assert_told_once(deep, "s79-left", sent, *children)
    assert len(briefings(deep, "s79-left")) == 2  # both in one, after that of the job


def test_S79_what_a_job_is_not_told_in_its_batch_s_time_is_told_to_the_chat(
    own: Serving, model: ScriptedModel, trial: Trial
) -> None:
    """The sender is in a step that takes long; once it goes on it hears nothing that was told already."""
    server = own(OUTRIDER_MAX_DEPTH="2", OUTRIDER_BATCH_JOIN_TIMEOUT_S="0.5")
    model.rules(
        [
            Rule(last_user="^s79 lasts$", tool_calls=[background("s79 child")]),
            Rule(last_tool="sent out", anywhere="(?m)^s79 lasts$", tool_calls=[calling("dwell", door="late")]),
            Rule(last_tool="through late", text="Done."),
            worker("s79 child"),
            briefing(),
        ]
    )
    sent = spawn(server, "s79-late", "s79 lasts")
    server.wait(lambda: len(server.jobs("s79-late")) == 2)
    (child,) = sent_out(server, "s79-late", "s79 child")
    when_told(server, child["id"])
    assert server.job(sent)["status"] == "running"
    trial.open("late")
    when_told(server, sent)
    when_quiet(server, "s79-late")
    assert not [block for asked in requests_of(model, "s79 lasts") for block in news_in(asked)]
    assert_told_once(server, "s79-late", sent, child["id"])


def test_S79_two_levels_and_no_third_by_tool_and_sdk_alike(deep: Server, model: ScriptedModel) -> None:
    second = {"tasks": [job("s79 second", "sender")], "run_in_background": True}
    model.rules(
        [
            *sender(
                "s79 first", calling("task_batch", **second), calling("send", session="s79-deep", prompt="s79 sdk")
            ),
            *sender("s79 second", background("s79 third"), calling("send", session="s79-deep", prompt="s79 third")),
            briefing(),
        ]
    )
    sent = spawn(deep, "s79-deep", "s79 first")
    deep.wait(lambda: len(deep.jobs("s79-deep")) == 3)
    jobs = deep.jobs("s79-deep")
    when_told(deep, *(one["id"] for one in jobs))
    assert {one["prompt"]: (one.get("depth", 1), one.get("parent")) for one in jobs} == {
        "s79 first": (1, None),
        "s79 second": (2, sent),
        "s79 sdk": (2, sent),
    }
    assert all(told.startswith("DEPTH_LIMIT: Jobs may be 2") for told in refusals(model, "s79 second"))
    when_quiet(deep, "s79-deep")
    assert_told_once(deep, "s79-deep", *(one["id"] for one in jobs if one["prompt"] != "s79 second"))


@pytest.mark.parametrize("by", ["user", "agent"])
def test_S55_a_job_that_is_canceled_takes_along_what_it_has_sent_out(
    deep: Server, model: ScriptedModel, by: str
) -> None:
    session = f"s55-{by}"
    model.rules(
        [
            *sender("s55 sends", background("s55 child"), gate="never"),
            worker("s55 child", gate="never"),
            Rule(last_user="^stop (bg-.*)$", tool_offered="task", tool_calls=[calling("stop_task", job_id="{1}")]),
            briefing(),
        ]
    )
    sent = spawn(deep, session, "s55 sends")
    model.wait_for(lambda asked: [each.gate for each in asked].count("never") == 2)
    held = [asked for asked in model.requests() if asked.gate == "never"]
    if by == "user":
        deep.post(f"/api/background/{sent}/cancel")
    else:
        deep.ask(session, f"stop {sent}")
    model.wait_for(lambda _: all(asked.gone_at for asked in held), 3)
    assert [(one["status"], one["canceled_by"]) for one in deep.jobs(session)] == [("canceled", by)] * 2
    when_quiet(deep, session)


def test_S83_jobs_of_jobs_count_in_the_tree_each_once(own: Serving, model: ScriptedModel) -> None:
    """Six calls for all: the sender's two, its child's three, and the one that its child has made in front."""
    server = own(OUTRIDER_MAX_DEPTH="3", OUTRIDER_TREE_TOKENS="6000")
    model.rules(
        [
            Rule(
                last_user="^s83 sends$",
                tool_calls=[calling("task", **job("s83 child", "sender"), run_in_background=True)],
                usage=COST,
            ),
            Rule(last_tool="sent out", text="It is out.", usage=COST),
            Rule(last_user="^s83 child$", text="So far.", tool_calls=[in_front("s83 front")], usage=COST),
            Rule(last_user="^s83 front$", text="In front.", usage=COST),
            Rule(last_tool="In front", tool_calls=[calling("memory_recall", query="zyzzyva")], usage=COST),
            Rule(
                last_tool="",
                anywhere="(?m)^s83 child$",
                tool_calls=[calling("memory_recall", query="zyzzyva")],
                usage=COST,
            ),
            briefing(),
        ]
    )
    sent = spawn(server, "s83", "s83 sends")
    server.wait(lambda: len(server.jobs("s83")) == 2)
    (child,) = sent_out(server, "s83", "s83 child")
    when_told(server, sent, child["id"])
    shown = server.job(child["id"])
    assert (shown["error"]["reason"], shown["report"]) == ("BUDGET_EXCEEDED", "So far.")
    assert [server.job(one)["usage"]["requests"] for one in (sent, child["id"])] == [2, 4]
    usage = server.get("/api/sessions/s83")["usage"]
    assert usage["tree_tokens"] == 6000 and sums(usage["causes"]["job"])["requests"] == 6
    (told,) = notifications(server, "s83", child["id"])
    assert "BUDGET_EXCEEDED" in {block.get("reason code") for block in blocks_in(told["text"])}
