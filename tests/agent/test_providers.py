"""Each model request is told before it is made: also a fallback's, a streamed one, and one of a foreground subagent."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.toolsets import FunctionToolset

from agent.loop import ModelCallFailed, Progress, Unkept, drive, user_message
from agent.models import build_model
from agent.providers import after_answers, before_requests, levels_by_provider, provider_of
from background.usage import Usage
from tests.support.scripted import ScriptedModel

Run = Callable[..., Any]
NO_RETRY = {"x-should-retry": "false"}
BROKEN = {"status": 503, "headers": NO_RETRY}
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


class Stop(BaseException):
    """A signal: this request may not be made."""


@pytest.fixture
def endpoint(scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch) -> ScriptedModel:
    """Two providers, as far as names go, at one address."""
    monkeypatch.setenv("OPENAI_BASE_URL", scripted.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OLLAMA_BASE_URL", scripted.base_url)
    return scripted


class Told:
    """What was told and asked, in order: `before openai`, then `asked one`."""

    def __init__(self, endpoint: ScriptedModel, stop_at: str | None = None) -> None:
        self._endpoint, self._stop_at = endpoint, stop_at
        self.heard: list[tuple[str, int]] = []

    async def __call__(self, provider: str) -> None:
        await asyncio.sleep(0)  # it may wait, as a transaction does
        self.heard.append((provider, len(self._endpoint.requests())))
        if provider == self._stop_at:
            raise Stop

    @property
    def asked(self) -> list[str]:
        return [asked.body["model"] for asked in self._endpoint.requests()]


async def turn(model: Any, told: Told, streamed: bool = True, tools: Any = None) -> str:
    """One turn, through the loop that turns go through, or whole, as other callers ask."""
    async with model:  # or its connections would outlive the test
        with before_requests(told):
            if not streamed:
                answer = await Agent(model, retries={"output": 0}).run("hello?", model_settings={"max_retries": 0})
                return answer.output
            return await driven(model, tools or FunctionToolset())


async def driven(model: Any, tools: Any) -> str:
    progress = Progress([])
    await drive(model, "", tools, progress, user_message("hello?"), Unkept(), 20)
    return progress.final_texts[-1]


@contextmanager
def stopped() -> Iterator[None]:
    with pytest.raises(Stop):
        yield


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("openai:gpt-5", "openai"),
        ("openai-chat:any", "openai"),
        ("openai-responses:any", "openai"),
        ("anthropic:claude", "anthropic"),
        ("ollama:llama3:8b", "ollama"),
        ("offline", "offline"),
    ],
)
def test_a_provider_is_known_by_the_models_name(model: str, provider: str) -> None:
    assert provider_of(model) == provider


def test_a_level_counts_under_whatever_name_of_its_provider_it_was_given() -> None:
    given = {"openai-chat": "redacted", "openai": "full", "openai-responses": "metadata", "ollama": "none"}
    assert levels_by_provider(given) == {"openai": "metadata", "ollama": "none"}


@STREAMED
def test_f042_each_request_is_told_before_it_is_made_also_a_fallbacks(
    endpoint: ScriptedModel, run: Run, streamed: bool
) -> None:
    endpoint.rules([BROKEN | {"times": 2}, {"text": "the third answers"}])
    model = build_model("openai-chat:one", ["ollama:two", "openai-chat:three", "offline"])
    told = Told(endpoint)
    assert run(turn(model, told, streamed)) == "the third answers"
    assert told.heard == [("openai", 0), ("ollama", 1), ("openai", 2)]
    assert told.asked == ["one", "two", "three"]


@STREAMED
def test_F172_what_each_answer_has_cost_is_told_once_and_of_a_failure_nothing(
    endpoint: ScriptedModel, run: Run, streamed: bool
) -> None:
    cost = {"prompt_tokens": 70, "completion_tokens": 7}
    endpoint.rules([BROKEN | {"times": 1}, {"text": "the second answers", "usage": cost}])
    spent: list[Usage] = []
    with after_answers(spent.append):
        run(turn(build_model("openai-chat:one", ["ollama:two"]), Told(endpoint), streamed))
    assert spent == [Usage(1, 70, 7, 0)]


def test_F172_of_an_answer_that_breaks_off_before_its_provider_said_what_it_cost_nothing_is_told(
    endpoint: ScriptedModel, run: Run
) -> None:
    endpoint.rules([{"text": "It begins, and is cut off in the middle of its words.", "cut_after": 20}])
    spent: list[Usage] = []
    with after_answers(spent.append), pytest.raises(ModelCallFailed):
        run(turn(build_model("openai-chat:one"), Told(endpoint)))
    assert spent == []


@STREAMED
def test_the_model_that_needs_nothing_is_told_too(endpoint: ScriptedModel, run: Run, streamed: bool) -> None:
    told = Told(endpoint)
    run(turn(build_model("offline"), told, streamed))
    assert [provider for provider, _ in told.heard] == ["offline"]


@STREAMED
def test_f045_a_signal_stops_that_request_and_the_turn_and_no_other_model_is_tried(
    endpoint: ScriptedModel, run: Run, streamed: bool
) -> None:
    endpoint.rules([BROKEN | {"times": 1}, {"text": "never said"}])
    told = Told(endpoint, stop_at="ollama")

    async def story() -> None:
        with stopped():
            await turn(build_model("openai-chat:one", ["ollama:two", "openai-chat:three"]), told, streamed)

    run(story())
    assert told.asked == ["one"]
    assert [provider for provider, _ in told.heard] == ["openai", "ollama"]


def test_a_signal_at_a_later_step_stops_the_turn_though_its_first_request_was_answered(
    endpoint: ScriptedModel, run: Run
) -> None:
    endpoint.rules(
        [
            {"last_user": "hello", "tool_calls": [{"name": "look", "arguments": {}}], "times": 1},
            {"anywhere": "hello", **BROKEN, "times": 1},
            {"anywhere": "hello", "text": "never said"},
        ]
    )
    told = Told(endpoint, stop_at="ollama")
    looked: list[str] = []

    def look() -> str:
        looked.append("once")
        return "nothing there"

    async def story() -> None:
        with stopped():
            await turn(
                build_model("openai-chat:one", ["ollama:two"]), told, tools=FunctionToolset([look], max_retries=0)
            )

    run(story())
    assert looked == ["once"] and told.asked == ["one", "one"]


def test_a_signal_inside_a_tool_that_asks_a_model_itself_stops_the_whole_turn(
    endpoint: ScriptedModel, run: Run
) -> None:
    """A foreground subagent is a tool call: what its requests may not do, the turn may not do."""
    endpoint.rules([{"tool_offered": "send", "tool_calls": [{"name": "send", "arguments": {}}], "times": 1}])
    told = Told(endpoint, stop_at="ollama")
    below = build_model("ollama:below")

    async def send() -> str:
        return await driven(below, FunctionToolset())

    async def story() -> None:
        async with below:
            with stopped():
                await turn(build_model("openai-chat:above"), told, tools=FunctionToolset([send], max_retries=0))

    run(story())
    assert told.asked == ["above"] and [provider for provider, _ in told.heard] == ["openai", "ollama"]


def test_two_turns_at_once_are_told_each_of_its_own(endpoint: ScriptedModel, run: Run) -> None:
    one, other = Told(endpoint), Told(endpoint)

    async def story() -> None:
        await asyncio.gather(turn(build_model("openai-chat:one"), one), turn(build_model("ollama:two"), other))

    run(story())
    assert [provider for provider, _ in one.heard] == ["openai"]
    assert [provider for provider, _ in other.heard] == ["ollama"]


def test_where_nobody_asked_nobody_is_told(endpoint: ScriptedModel, run: Run) -> None:
    told = Told(endpoint)

    async def story() -> str:
        await turn(build_model("openai-chat:one"), told)
        async with build_model("openai-chat:two") as other:
            return (await Agent(other).run("hello?")).output

    assert run(story()) == "ok"
    assert len(told.heard) == 1
