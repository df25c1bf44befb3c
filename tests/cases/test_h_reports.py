"""Theme H: what a worker wrote for its reader arrives: the right text, all of it, within its bounds, with what went wrong."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from knowledge.backend import StoreFailed
from tests.cases.stories import (
    assert_told_once,
    blocks_in,
    briefing,
    calling,
    fan,
    news_in,
    notifications,
    sent_out,
    told_in,
    when_quiet,
    when_told,
    worker,
)
from tests.support.inside import Inside, openai_model
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Server

MakeInside = Callable[..., Inside]
SETTINGS = {"OUTRIDER_MAX_ATTEMPTS": "1", "OUTRIDER_MAX_JOBS": "10"}
RECALL = [calling("memory_recall", query="anything")]
AFTER_RECALL = "(?i)nothing found|reference"
LONG = "A sentence that says something. " * 160  # more than 5 kB


def test_S63_an_index_that_fails_delays_no_delivery_and_no_pointer_leads_to_it(
    inside: MakeInside, model: ScriptedModel
) -> None:
    """The notification names memory_recall only where the report is to be found; once the index works, it is."""
    outrider = inside()
    read = Rule(last_user="^read (bg-.*)$", tool_calls=[calling("open_report", job_id="{1}", offset=5000, limit=100)])
    model.rules([worker("s63 works", LONG), read, Rule(last_tool="characters 5000 to 5100", text="Read."), briefing()])
    outrider.ask("s63", "hello")

    async def broken() -> None:
        raise StoreFailed("no room")

    outrider.outrider.store.before_put = broken
    sent = outrider.spawn("s63", "s63 works")["id"]
    outrider.pass_pause("report")
    outrider.pass_pause("report")
    when_told(outrider, sent)
    (row,) = outrider.rows("select ready_at - ended_at as held from deliveries where job_id = :job", job=sent)
    assert row["held"] < 5e6
    assert not outrider.job(sent)["indexed"] and outrider.job(sent)["report"] == LONG
    (told,) = notifications(outrider, "s63", sent)
    (block,) = blocks_in(told["text"])
    assert block["result truncated"] == "true" and "memory_recall" not in block["full-report"]
    assert f'open_report(job_id="{sent}")' in block["full-report"]
    assert outrider.ask("s63", f"read {sent}") == "Read."

    outrider.outrider.store.before_put = None
    outrider.pass_pause("index")
    outrider.wait(lambda: outrider.job(sent)["indexed"])
    hits = outrider.get("/api/knowledge/search", q="something", session="s63")["hits"]
    assert [hit["job_id"] for hit in hits] == [sent]
    when_quiet(outrider, "s63")
    assert_told_once(outrider, "s63", sent)


def test_S63_a_report_that_can_be_searched_says_so_and_a_partial_one_cannot(
    server: Server, model: ScriptedModel
) -> None:
    model.rules(
        [
            *fan("s63", "s63 whole", "s63 partial", "s63 short"),
            worker("s63 whole", LONG),
            worker("s63 partial", LONG, finish_reason="length"),
            worker("s63 short"),
            briefing(),
        ]
    )
    server.ask("s63w", "s63")
    jobs = sent_out(server, "s63w", "s63 whole", "s63 partial", "s63 short")
    when_told(server, *(one["id"] for one in jobs))
    assert [server.job(one["id"])["indexed"] for one in jobs] == [True, False, True]
    blocks = {block["job-id"]: block for block in blocks_in(notifications(server, "s63w", jobs[0]["id"])[0]["text"])}
    whole, partial, short = (blocks[one["id"]] for one in jobs)
    assert "memory_recall" in whole["full-report"] and "memory_recall" not in partial["full-report"]
    assert "open_report" in partial["full-report"] and "full-report" not in short
    hits = server.get("/api/knowledge/search", q="something", session="s63w")["hits"]
    assert [hit["job_id"] for hit in hits] == [jobs[0]["id"]]


def test_S64_a_report_that_was_written_before_the_last_words_is_not_lost(server: Server, model: ScriptedModel) -> None:
    """The worker writes 5 kB, makes a tool call and ends with "see above"; where its last answer is the longest, that is it."""
    model.rules(
        [
            worker("s64 above", LONG, tool_calls=RECALL),
            worker("s64 below", "Let me look that up.", tool_calls=RECALL),
            Rule(last_tool=AFTER_RECALL, anywhere="^(?s:.*)s64 above", text="Report delivered above."),
            Rule(last_tool=AFTER_RECALL, text=LONG),
            briefing(),
        ]
    )
    server.ask("s64", "hello")
    above, below = (server.spawn("s64", prompt)["id"] for prompt in ("s64 above", "s64 below"))
    when_told(server, above, below)
    assert server.job(above)["report"] == f"{LONG}\n\nReport delivered above."
    assert server.job(below)["report"] == LONG
    assert server.http.get(f"/api/background/{below}/report").text == LONG


class InParts(WrapperModel):
    """A model whose workers answer in these parts at once; chats are the scripted model's."""

    def __init__(self, chats: Model, *parts: TextPart | ThinkingPart) -> None:
        super().__init__(chats)
        self._parts = parts

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        if any(tool.name == "task" for tool in model_request_parameters.function_tools):
            asked = self.wrapped.request_stream(messages, model_settings, model_request_parameters, run_context)
            async with asked as stream:
                yield stream
        else:
            whole = ModelResponse(parts=list(self._parts))
            yield CompletedStreamedResponse(
                whole, model_request_parameters=model_request_parameters, replay_events=True
            )


def test_S64_a_final_answer_in_several_parts_is_kept_with_all_of_them_in_order(
    inside: MakeInside, model: ScriptedModel
) -> None:
    parts = (
        TextPart(LONG),
        ThinkingPart("Is that all?"),
        TextPart("Second part."),
        ThinkingPart("Yes."),
        TextPart("End."),
    )
    outrider = inside(instead=InParts(openai_model(model.base_url), *parts))
    model.rules([briefing()])
    outrider.ask("s64p", "hello")
    sent = outrider.spawn("s64p", "s64 in parts")["id"]
    when_told(outrider, sent)
    assert outrider.job(sent)["report"] == f"{LONG}\n\nSecond part.\n\nEnd."


def test_S65_ten_long_reports_fit_one_turn_and_the_session_goes_on(server: Server, model: ScriptedModel) -> None:
    """120 000 characters each: within the budget in the model's own request, each named, each whole by id."""
    prompts = [f"s65 part {number}" for number in range(10)]
    chunk = "All work and no play makes & a < dull > report. "
    model.rules(
        [
            *fan("s65", *prompts),
            *(worker(prompt, prompt, repeat=(chunk, 2500)) for prompt in prompts),
            Rule(last_user="^hi$", text="Hello to you."),
            briefing(),
        ]
    )
    server.ask("s65", "s65")
    jobs = sent_out(server, "s65", *prompts)
    when_told(server, *(one["id"] for one in jobs))
    (asked,) = told_in(model, jobs[0]["id"])
    blocks = news_in(asked)
    assert sum(len(block["text"]) for block in blocks) <= 24_000
    assert {(block["job-id"], block["description"], block["status"]) for block in blocks} == {
        (one["id"], one["description"], "completed") for one in jobs
    }
    assert all(len(block["result"]) > 1000 and block["result truncated"] == "true" for block in blocks)
    for one, prompt in zip(jobs, prompts, strict=True):
        shown = server.job(one["id"])
        assert shown["report"] == prompt + chunk * 2500 and shown["report_chars"] == len(shown["report"]) > 120_000
    assert server.ask("s65", "hi") == "Hello to you."
    assert_told_once(server, "s65", *(one["id"] for one in jobs))


def test_S65_ends_that_one_turn_has_no_room_to_name_are_told_by_further_ones(
    inside: MakeInside, model: ScriptedModel
) -> None:
    """More jobs than fit the budget even as lines: none is lost, none is told twice, and nobody has to ask."""
    outrider = inside(notifications_chars=1500)
    model.rules([worker("s65 many .*", gate="end"), Rule(last_user="^hi$", text="Hello."), briefing()])
    outrider.ask("s65m", "hello")
    jobs = [{"prompt": f"s65 many {number}", "description": f"{number:02} ".ljust(200, "d")} for number in range(12)]
    sent = [one["id"] for one in outrider.post("/api/background", session="s65m", jobs=jobs)["jobs"]]
    model.open("end")
    when_told(outrider, *sent)
    when_quiet(outrider, "s65m")
    told = [message for message in outrider.messages("s65m") if message["kind"] == "notification"]
    assert all(len(message["text"]) <= 1500 for message in told) and len(told) > 1
    assert sorted(job_id for message in told for job_id in message["job_ids"]) == sorted(sent)
    assert_told_once(outrider, "s65m", *sent)
    assert outrider.ask("s65m", "hi") == "Hello."


def test_S65_what_comes_between_the_steps_of_a_turn_counts_against_its_one_budget(
    inside: MakeInside, model: ScriptedModel
) -> None:
    """A turn that has been given much already leaves what comes next to a turn of its own."""
    outrider = inside(notifications_chars=3000)
    model.rules(
        [
            worker("s65 long (one|two)", LONG),
            Rule(last_user="^s65 works$", gate="first", tool_calls=RECALL),
            Rule(last_user="<task-notification>", times=1, gate="second", tool_calls=RECALL),
            Rule(last_tool=AFTER_RECALL, text="Done."),
            briefing(),
        ]
    )
    turn = outrider.say("s65f", "s65 works")
    model.held_at("first")
    sent = []
    for prompt, gate in (("s65 long one", "first"), ("s65 long two", "second")):
        sent.append(outrider.spawn("s65f", prompt)["id"])
        outrider.wait(lambda: len([m for m in outrider.messages("s65f") if m["kind"] == "nudge"]) == len(sent))
        model.open(gate)
        if gate == "first":
            model.held_at("second")
    outrider.ended(turn)
    when_told(outrider, *sent)
    when_quiet(outrider, "s65f")
    assert_told_once(outrider, "s65f", *sent)
    assert outrider.job(sent[0])["notified_in"] == turn != outrider.job(sent[1])["notified_in"]
    for job_id in sent:
        (block,) = blocks_in(notifications(outrider, "s65f", job_id)[0]["text"])
        assert len(block["result"]) > 1000


FAILURES = {
    "retry after": ("HTTP 429 retry after 120s", 429, "retry after 120s", ""),
    "a key": ("bad key sk-live-abc123 was refused", 401, "was refused", "sk-live-abc123"),
    "a header": ("you sent Authorization: Bearer xyz789 and it is wrong", 400, "it is wrong", "xyz789"),
}


@pytest.mark.parametrize("what", FAILURES)
def test_S67_a_failure_comes_with_its_cause_and_without_its_secrets(
    server: Server, model: ScriptedModel, what: str
) -> None:
    text, status, cause, secret = FAILURES[what]
    session = f"s67-{list(FAILURES).index(what)}"
    model.rules([worker(session, status=status, text=text), briefing()])
    server.ask(session, "hello")
    sent = server.spawn(session, session)["id"]
    when_told(server, sent)
    shown = server.job(sent)
    assert shown["status"] == "failed" and shown["error"]["reason"] == "MODEL_FAILED"
    (block,) = blocks_in(notifications(server, session, sent)[0]["text"])
    task = server.task(shown["task_id"])
    told = [shown["error"]["message"], block["reason"], task["status"]["message"]["parts"][0]["text"]]
    assert all(cause in message and str(status) in message for message in told), told
    if secret:
        everything = [
            *told,
            str(shown),
            str(server.messages(session)),
            server.log(),
            *(r.text for r in model.requests()),
        ]
        assert not any(secret in text for text in everything)
