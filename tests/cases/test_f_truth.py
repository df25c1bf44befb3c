"""Theme F: what a job's status says is what happened: no unfinished work is called completed, no silence is called work."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from agent import loop
from agent.subagents import DETACHED
from background.database import wall_clock
from tests.cases.stories import (
    Block,
    assert_told_once,
    blocks_in,
    briefing,
    calling,
    fan,
    notifications,
    when_quiet,
    when_told,
    worker,
    worker_requests,
)
from tests.support.inside import Inside, openai_model
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of, free_port

MakeInside = Callable[..., Inside]
SETTINGS = {"OUTRIDER_MAX_ATTEMPTS": "1", "OUTRIDER_MAX_JOBS": "1"}
RECALL = [calling("memory_recall", query="anything")]
AFTER_RECALL = "(?i)nothing found|reference"


def block_of(server: Server, session: str, job_id: str) -> Block:
    """The one block in which the model was told of a job."""
    (told,) = notifications(server, session, job_id)
    (block,) = [block for block in blocks_in(told["text"]) if block["job-id"] == job_id]
    return block


UNFINISHED: dict[str, tuple[str, str, list[Rule]]] = {
    "the token limit": ("OUTPUT_LIMIT", "length limit", [worker("s47 0", "Half of it", finish_reason="length")]),
    "a refusal": ("MODEL_FAILED", "refused", [worker("s47 1", "I was about to", finish_reason="content_filter")]),
    "429 after half a text": (
        "MODEL_FAILED",
        "429",
        [
            worker("s47 2", "The first half.", tool_calls=RECALL),
            Rule(last_tool=AFTER_RECALL, status=429, text="slow down"),
        ],
    ),
    "a broken stream": ("MODEL_FAILED", "broke off", [worker("s47 3", "It breaks off in the middle.", cut_after=13)]),
}
LEFT = ["Half of it", "I was about to", "The first half.", "It breaks off"]


@pytest.mark.parametrize("how", UNFINISHED)
def test_S47_unfinished_work_is_failed_with_its_reason_and_what_text_there_was(
    server: Server, model: ScriptedModel, how: str
) -> None:
    number = list(UNFINISHED).index(how)
    reason, words, rules = UNFINISHED[how]
    session = f"s47-{number}"
    model.rules([*rules, briefing()])
    server.ask(session, "hello")
    sent = server.spawn(session, f"s47 {number}")["id"]
    when_told(server, sent)
    shown = server.job(sent)
    assert shown["status"] == "failed" and shown["error"]["reason"] == reason and words in shown["error"]["message"]
    assert shown["partial"] and shown["report"] == LEFT[number] and shown["excerpt"] == LEFT[number]
    block = block_of(server, session, sent)
    assert (block["status"], block["reason code"]) == ("failed", reason) and words in block["reason"]
    assert (block["result partial"], block["result"]) == ("true", LEFT[number])
    task = server.task(shown["task_id"])
    assert task["status"]["state"] == "TASK_STATE_FAILED" and task["metadata"]["reason"] == reason
    assert task["artifacts"] == [], "no artifact poses as the answer"
    assert not shown["indexed"]


def test_S47_a_worker_that_only_calls_tools_fails_at_its_limits(
    inside: MakeInside, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step limit, and a tool that does not exist called again and again; the limits are lowered for the test."""
    monkeypatch.setattr(loop, "MAX_STEPS", 4)
    monkeypatch.setattr(loop, "TOOL_RETRIES", 2)
    outrider = inside()
    model.rules(
        [
            worker("s47 loops", "Looking.", tool_calls=RECALL),
            Rule(last_tool=AFTER_RECALL, text="And again.", tool_calls=RECALL),
            worker("s47 gets lost", "Trying.", tool_calls=[calling("no_such_tool")]),
            Rule(last_tool="no_such_tool", text="Trying.", tool_calls=[calling("no_such_tool")]),
            briefing(),
        ]
    )
    outrider.ask("s47", "hello")
    loops, lost = (outrider.spawn("s47", prompt)["id"] for prompt in ("s47 loops", "s47 gets lost"))
    when_told(outrider, loops, lost)
    assert outrider.job(loops)["error"]["reason"] == "OUTPUT_LIMIT"
    assert outrider.job(lost)["error"]["reason"] == "MODEL_FAILED"
    assert outrider.job(loops)["report"] == "\n\n".join(["Looking.", *["And again."] * 3])
    assert [outrider.job(one)["partial"] for one in (loops, lost)] == [True, True]
    assert len(worker_requests(model, "s47 loops")) == 4


def test_S47_a_chat_answer_that_was_cut_off_is_not_shown_as_an_answer(server: Server, model: ScriptedModel) -> None:
    model.rules([Rule(last_user="^s47 chat$", text="As I was say", finish_reason="length")])
    task = server.ended(server.say("s47-chat", "s47 chat"))
    assert task["status"]["state"] == "TASK_STATE_FAILED" and task["metadata"]["reason"] == "OUTPUT_LIMIT"
    said = server.messages("s47-chat")[-1]
    assert (said["kind"], said["state"], said["reason"]) == ("agent", "failed", "OUTPUT_LIMIT")
    assert said["text"] == "As I was say" and said["detail"]


EMPTY: dict[str, dict[str, Any]] = {
    "nothing": {},
    "blanks": {"repeat": ("  \n", 1)},
    "thoughts without text": {"reasoning": "I should say something."},
}


@pytest.mark.parametrize("how", EMPTY)
def test_S48_an_empty_end_is_no_report_and_is_not_run_again(server: Server, model: ScriptedModel, how: str) -> None:
    number = list(EMPTY).index(how)
    session = f"s48-{number}"
    model.rules([Rule(last_user=f"^s48 {number}$", **EMPTY[how]), briefing()])
    server.ask(session, "hello")
    sent = server.spawn(session, f"s48 {number}", f"zugzwang {number}")["id"]
    when_told(server, sent)
    when_quiet(server, session)
    shown = server.job(sent)
    assert shown["status"] == "failed" and shown["error"]["reason"] == "NO_REPORT" and shown["error"]["message"]
    assert not shown["report"] and not shown["partial"] and not shown["indexed"] and shown["report_chars"] == 0
    assert server.http.get(f"/api/background/{sent}/report").status_code == 404
    block = block_of(server, session, sent)
    assert (block["status"], block["reason code"]) == ("failed", "NO_REPORT")
    assert "result" not in block and "full-report" not in block
    assert (block["work model-calls"], block["work tool-calls"]) == ("1", "0")
    assert len(worker_requests(model, f"s48 {number}")) == 1
    assert server.get("/api/knowledge/search", q=f"zugzwang {number}", session=session)["hits"] == []


@pytest.mark.parametrize("how", EMPTY)
def test_S48_a_chat_turn_of_which_nothing_came_has_failed_and_gives_nothing(
    server: Server, model: ScriptedModel, how: str
) -> None:
    session = f"s48-chat-{list(EMPTY).index(how)}"
    model.rules([Rule(last_user=f"^{session}$", **EMPTY[how])])
    task = server.ended(server.say(session, session))
    assert task["status"]["state"] == "TASK_STATE_FAILED" and task["metadata"]["reason"] == "NO_REPORT"
    assert not task.get("artifacts")
    said = server.messages(session)[-1]
    assert (said["state"], said["reason"], said["detail"]) == ("failed", "NO_REPORT", "The model gave no answer.")


def test_S48_a_silent_chat_turn_that_sent_something_out_says_what_went(server: Server, model: ScriptedModel) -> None:
    model.rules(
        [
            *fan("s48-sent", "s48 sent", then=" "),
            worker("s48 sent"),
            briefing(),
        ]
    )
    task = server.ended(server.say("s48-sent", "s48-sent"))
    (sent,) = server.jobs("s48-sent")
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert answer_of(task).startswith("These were sent out:") and sent["id"] in answer_of(task)
    when_told(server, sent["id"])


class WorkersApart(WrapperModel):
    """A model for chats, and another one for workers."""

    def __init__(self, chats: Model, workers: Model) -> None:
        super().__init__(chats)
        self._workers = workers

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        detached = any(DETACHED in (getattr(message, "instructions", None) or "") for message in messages)
        model = self._workers if detached else self.wrapped
        async with model.request_stream(messages, model_settings, model_request_parameters, run_context) as stream:
            yield stream


def test_S48_a_worker_whose_model_was_never_reached_says_so_with_zeros(
    inside: MakeInside, model: ScriptedModel
) -> None:
    nobody = openai_model(f"http://127.0.0.1:{free_port()}/v1")
    outrider = inside(instead=WorkersApart(openai_model(model.base_url), nobody), max_attempts=1)
    model.rules([briefing()])
    outrider.ask("s48", "hello")
    sent = outrider.spawn("s48", "s48 calls in vain")["id"]
    when_told(outrider, sent)
    shown = outrider.job(sent)
    assert shown["status"] == "failed" and shown["error"]["reason"] == "MODEL_FAILED"
    assert "could not be reached" in shown["error"]["message"]
    assert shown["usage"] == {"requests": 0, "input_tokens": 0, "output_tokens": 0, "tool_calls": 0}
    block = block_of(outrider, "s48", sent)
    assert (block["work model-calls"], block["work tool-calls"]) == ("0", "0") and "result" not in block


def test_S51_by_whatever_road_a_job_ends_every_view_agrees(server: Server, model: ScriptedModel) -> None:
    """Completion, failure, cancel of one that runs and of one that is queued; one job runs at a time here."""
    model.rules(
        [
            worker("s51 completes", gate="complete"),
            worker("s51 fails", status=400, text="no", gate="fail"),
            worker("s51 is canceled", gate="never"),
            briefing(),
        ]
    )
    server.ask("s51", "hello")
    prompts = ("s51 completes", "s51 fails", "s51 is canceled", "s51 never starts")
    sent = server.post("/api/background", session="s51", jobs=[{"prompt": prompt} for prompt in prompts])["jobs"]
    completes, fails, canceled, queued = (one["id"] for one in sent)

    def listed(status: str) -> set[str]:
        return {one["id"] for one in server.jobs("s51", status=status)}

    def ends(job_id: str, status: str) -> None:
        server.wait(lambda: server.job(job_id)["completed_at"])
        shown = server.job(job_id)
        assert shown["status"] == status and job_id in listed(status)
        assert not any(
            job_id in listed(other) for other in {"queued", "running", "completed", "failed", "canceled"} - {status}
        )
        if shown["task_id"]:
            server.wait(lambda: server.task(shown["task_id"])["status"]["state"] == f"TASK_STATE_{status.upper()}", 1)
            assert server.task(shown["task_id"])["status"]["timestamp"] == shown["completed_at"]

    model.held_at("complete")
    assert listed("running") == {completes} and listed("queued") == {fails, canceled, queued}
    server.post(f"/api/background/{queued}/cancel")
    ends(queued, "canceled")
    model.open("complete")
    ends(completes, "completed")
    model.held_at("fail")
    model.open("fail")
    ends(fails, "failed")
    model.held_at("never")
    server.post(f"/api/background/{canceled}/cancel")
    ends(canceled, "canceled")
    assert listed("running") == listed("queued") == set()
    when_quiet(server, "s51")


def test_S47_what_a_foreground_subagent_left_unfinished_is_named_to_the_model_as_that(
    server: Server, model: ScriptedModel
) -> None:
    """It is no job, but its end is as little a success as a job's would be."""
    spec = {"description": "S47", "prompt": "s47 in front", "subagent_type": "general"}
    model.rules(
        [
            Rule(last_user="^s47 front$", tool_calls=[calling("task", **spec)]),
            worker("s47 in front", "Half of it", finish_reason="length"),
            Rule(last_tool="OUTPUT_LIMIT: .*length limit(?s:.*)Half of it", text="It was cut off."),
        ]
    )
    assert server.ask("s47-front", "s47 front") == "It was cut off."


def test_S52_silence_is_a_stall_and_a_long_tool_call_is_not(inside: MakeInside, model: ScriptedModel) -> None:
    """A model that never begins, one that stops in the middle, and a healthy tool call that takes longer than a stall."""
    outrider = inside(now=wall_clock, stall_s=1)

    async def slowly() -> None:
        await asyncio.sleep(1.6)

    outrider.outrider.store.before_search = slowly
    model.rules(
        [
            worker("s52 never begins", hang_after=0),
            worker("s52 stops in the middle", "Half a sentence and then", hang_after=15),
            worker("s52 searches", "Searching.", tool_calls=RECALL),
            Rule(last_tool=AFTER_RECALL, text="It went on."),
            briefing(),
        ]
    )
    outrider.ask("s52", "hello")
    prompts = ("s52 never begins", "s52 stops in the middle", "s52 searches")
    never, middle, searches = (outrider.spawn("s52", prompt)["id"] for prompt in prompts)
    when_told(outrider, never, middle, searches)
    for job_id, report in ((never, ""), (middle, "Half a sentence")):
        shown = outrider.job(job_id)
        assert shown["status"] == "failed" and shown["error"]["reason"] == "STALLED"
        assert shown["report"] == report and shown["partial"] == bool(report)
        where = "in the middle of an answer." if report else "before its first answer."
        assert shown["error"]["message"].endswith(where)
        since = re.search(r"since (\S+Z)", shown["error"]["message"])
        assert since and shown["started_at"] <= since[1] < shown["completed_at"], "it names the last activity's time"
    assert outrider.job(searches)["status"] == "completed" and outrider.job(searches)["report"] == "It went on."
    assert_told_once(outrider, "s52", never, middle, searches)


def test_S53_time_in_the_queue_is_not_time_at_work(inside: MakeInside, model: ScriptedModel) -> None:
    """Three jobs one after the other: the last is there longer than a job may run, and does not time out."""
    outrider = inside(now=wall_clock, max_jobs=1, job_timeout_s=2)
    model.rules([worker("s53 .", "Done.", delay_s=0.8), briefing()])
    outrider.ask("s53", "hello")
    jobs = outrider.post("/api/background", session="s53", jobs=[{"prompt": f"s53 {letter}"} for letter in "abc"])[
        "jobs"
    ]
    assert [one["status"] for one in jobs] == ["queued"] * 3 and not any(one["started_at"] for one in jobs)
    when_told(outrider, *(one["id"] for one in jobs))
    shown = [outrider.job(one["id"]) for one in jobs]
    assert [one["status"] for one in shown] == ["completed"] * 3
    for before, after in pairwise(shown):
        assert before["completed_at"] <= after["started_at"]
    assert shown[2]["started_at"] > shown[2]["created_at"]
    model_calls = worker_requests(model, "s53 c")
    assert len(model_calls) == 1 and answer_of(outrider.task(shown[2]["task_id"])) == "Done."
