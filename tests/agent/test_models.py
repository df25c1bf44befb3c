"""Models by name, over real HTTP: what a name may be, who answers when one fails, and what a failure is called."""

import re
import socket
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import (
    FallbackExceptionGroup,
    ModelHTTPError,
    ModelQuotaExceededError,
    RunTimedOut,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)
from pydantic_ai.models import Model
from pydantic_ai.usage import UsageLimits

from agent import models
from agent.models import Failure, ModelNotReady, UnknownModel, build_model, classify
from agent.offline import OfflineModel
from agent.providers import Announced
from tests.support.scripted import ScriptedModel
from tests.support.server import ROOT

Run = Callable[..., Any]
NO_RETRY = {"x-should-retry": "false"}  # or the provider's library waits and asks again by itself
BOTH_WAYS = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def endpoint(scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch) -> ScriptedModel:
    monkeypatch.setenv("OPENAI_BASE_URL", scripted.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    return scripted


@pytest.fixture
def dead_endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An address where nobody listens."""
    with socket.socket() as taken:  # bound and not listening: nobody else can listen there meanwhile
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield


async def ask(model: Model, streamed: bool = False, **settings: Any) -> str:
    """One question, over the agent library, as a turn does it."""
    given: Any = {"max_retries": 0, **settings}
    async with model, Agent(model, retries={"output": 0}).iter("hello?", model_settings=given) as run:
        async for node in run:
            if streamed and Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as stream:
                    async for _ in stream:
                        pass
    assert run.result is not None
    return run.result.output


async def failure(model: Model, streamed: bool = False, **settings: Any) -> Failure:
    with pytest.raises(Exception) as caught:  # which one, is what classify has to find out
        await ask(model, streamed, **settings)
    return classify(caught.value)


# --- names --------------------------------------------------------------------------------------------------------


def test_offline_is_the_model_that_needs_nothing() -> None:
    model = build_model("offline")
    assert isinstance(model, Announced) and isinstance(model.wrapped, OfflineModel)


def test_a_model_is_built_without_a_request_and_then_asks_the_endpoint_of_the_environment(
    endpoint: ScriptedModel, run: Run
) -> None:
    model = build_model("openai-chat:some-model")
    assert endpoint.requests() == []
    assert run(ask(model)) == "ok"
    assert [asked.body["model"] for asked in endpoint.requests()] == ["some-model"]


@pytest.mark.parametrize("name", ["garbagemodel-9000", "", "openai", "openai:", ":gpt-5", "nosuch:gpt-5", "test"])
def test_an_unknown_name_is_refused_in_one_line_that_says_what_is_allowed(name: str) -> None:
    """S84: the start stops; no other model is taken instead."""
    with pytest.raises(UnknownModel) as caught:
        build_model(name)
    told = str(caught.value)
    assert repr(name) in told and "offline" in told and "openai-chat:NAME" in told and "\n" not in told


def test_an_unknown_name_among_the_fallbacks_is_refused_too() -> None:
    with pytest.raises(UnknownModel, match="'nosuch'"):
        build_model("offline", ["nosuch"])


@pytest.mark.parametrize(
    ("name", "library", "command"),
    [
        ("openai:gpt-5-mini", "openai", f"pip install -e '{ROOT}[openai]'"),
        ("openai-chat:any", "openai", f"pip install -e '{ROOT}[openai]'"),
        ("ollama:llama3", "openai", f"pip install -e '{ROOT}[ollama]'"),
        ("anthropic:claude-sonnet-4-5", "anthropic", f"pip install -e '{ROOT}[anthropic]'"),
        ("google:gemini-2.5-flash", "google.genai", f"pip install -e '{ROOT}[google]'"),
        ("groq:llama", "groq", "pip install 'pydantic-ai-slim[groq]'"),
    ],
)
def test_a_missing_library_is_one_line_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, name: str, library: str, command: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    for module in [m for m in sys.modules if m.startswith(("pydantic_ai.models.", "pydantic_ai.providers."))]:
        if module.split(".")[2] in ("openai", "ollama", "anthropic", "google", "groq"):
            monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ModelNotReady) as caught:
        build_model(name)
    told = str(caught.value)
    assert told.endswith(f": {sys.executable} -m {command}") and name in told and "\n" not in told
    monkeypatch.setattr(models, "_ROOT", ROOT / "nosuch")  # as if it were a package, and no checkout
    with pytest.raises(ModelNotReady, match=r" -m pip install '(outrider|pydantic-ai-slim)\["):
        build_model(name)


@pytest.mark.parametrize(
    ("name", "variable"), [("openai:gpt-5-mini", "OPENAI_API_KEY"), ("ollama:llama3", "OLLAMA_BASE_URL")]
)
def test_a_missing_key_is_one_line_that_names_what_to_set(
    monkeypatch: pytest.MonkeyPatch, name: str, variable: str
) -> None:
    for each in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_BASE_URL"):
        monkeypatch.delenv(each, raising=False)
    with pytest.raises(ModelNotReady) as caught:
        build_model(name)
    assert str(caught.value) == f"model {name!r} cannot be used: set {variable} in the environment"


# --- fallbacks ----------------------------------------------------------------------------------------------------


@BOTH_WAYS
@pytest.mark.parametrize(
    "broken",
    [
        {"status": 503, "headers": NO_RETRY},
        {"status": 429, "headers": NO_RETRY},
        {"status": 401},
        {"status": 404},
        {"text": "never said", "cut_after": 0},
    ],
    ids=["unavailable", "rate limit", "wrong key", "no such model", "cut before the first word"],
)
def test_when_a_model_fails_the_next_one_answers(
    endpoint: ScriptedModel, run: Run, broken: dict[str, Any], streamed: bool
) -> None:
    endpoint.rules([broken | {"times": 2}, {"text": "the third answers"}])
    model = build_model("openai-chat:one", ["openai-chat:two", "openai-chat:three", "openai-chat:four"])
    assert run(ask(model, streamed)) == "the third answers"
    assert [asked.body["model"] for asked in endpoint.requests()] == ["one", "two", "three"]


@BOTH_WAYS
def test_a_provider_that_cannot_be_reached_is_passed_over(dead_endpoint: None, run: Run, streamed: bool) -> None:
    assert "offline model" in run(ask(build_model("openai-chat:gone", ["offline"]), streamed))


def test_a_stream_that_breaks_after_its_first_words_is_raised_and_not_begun_again(
    endpoint: ScriptedModel, run: Run
) -> None:
    endpoint.rules([{"text": "x" * 400, "cut_after": 200, "times": 1}, {"text": "another answer"}])
    told = run(failure(build_model("openai-chat:one", ["openai-chat:two"]), streamed=True))
    assert told.transient and "The connection to the model one broke off" in told.message
    assert len(endpoint.requests()) == 1


def test_when_all_fail_the_failure_names_each_and_may_recover_if_one_may(endpoint: ScriptedModel, run: Run) -> None:
    endpoint.rules(
        [{"status": 401, "text": "wrong key", "times": 1}, {"status": 503, "text": "busy", "headers": NO_RETRY}]
    )
    told = run(failure(build_model("openai-chat:one", ["openai-chat:two"])))
    assert told.transient
    assert told.message == (
        "The model one answered HTTP 401 Unauthorized: wrong key; "
        "then the model two answered HTTP 503 Service Unavailable: busy"
    )


def test_when_all_fail_for_good_another_try_is_not_worth_it(endpoint: ScriptedModel, run: Run) -> None:
    endpoint.rules([{"status": 401}])
    assert not run(failure(build_model("openai-chat:one", ["openai-chat:two"]))).transient


# --- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "transient"),
    [(s, True) for s in (408, 409, 425, 429, 500, 502, 503, 504, 529)]
    + [(s, False) for s in (400, 401, 403, 404, 422)],
)
def test_a_status_says_whether_another_try_may_help(
    endpoint: ScriptedModel, run: Run, status: int, transient: bool
) -> None:
    endpoint.rules([{"status": status, "text": "because of this", "headers": NO_RETRY}])
    told = run(failure(build_model("openai-chat:m")))
    assert told.transient is transient
    assert told.message.startswith(f"The model m answered HTTP {status}") and told.message.endswith(": because of this")


@BOTH_WAYS
def test_retry_after_in_seconds_is_heeded(endpoint: ScriptedModel, run: Run, streamed: bool) -> None:
    """S67: the cause stands in the message, as the provider gave it."""
    endpoint.rules([{"status": 429, "text": "retry after 120s", "headers": {"Retry-After": "120", **NO_RETRY}}])
    told = run(failure(build_model("openai-chat:m"), streamed))
    assert told == Failure(True, 120.0, "The model m answered HTTP 429 Too Many Requests: retry after 120s")


def test_retry_after_as_a_date_is_heeded(endpoint: ScriptedModel, run: Run) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    endpoint.rules([{"status": 503, "headers": {"Retry-After": date, **NO_RETRY}}])
    wait = run(failure(build_model("openai-chat:m"))).retry_after_s
    assert wait is not None and 3500 < wait <= 3600


def test_of_several_waits_the_shortest_counts_unless_one_may_be_tried_at_once() -> None:
    def limited(wait: float | None) -> ModelHTTPError:
        return ModelHTTPError(429, "m", retry_after=wait)

    refused = ModelHTTPError(401, "m", retry_after=1)
    assert classify(FallbackExceptionGroup("all", [limited(90), limited(30), refused])).retry_after_s == 30
    assert classify(FallbackExceptionGroup("all", [limited(90), limited(None)])).retry_after_s is None


@BOTH_WAYS
def test_a_connection_that_breaks_is_transient(endpoint: ScriptedModel, run: Run, streamed: bool) -> None:
    endpoint.rules([{"text": "x" * 400, "cut_after": 200}])
    told = run(failure(build_model("openai-chat:m"), streamed))
    assert told.transient and told.message == "The connection to the model m broke off"


def test_a_provider_that_cannot_be_reached_is_transient(dead_endpoint: None, run: Run) -> None:
    told = run(failure(build_model("openai-chat:m")))
    assert told == Failure(True, None, "The model m could not be reached")


@BOTH_WAYS
@pytest.mark.parametrize("setting", ["timeout", "request_timeout"])
def test_a_provider_that_falls_silent_is_transient(
    endpoint: ScriptedModel, run: Run, setting: str, streamed: bool
) -> None:
    endpoint.rules([{"text": "x" * 400, "hang_after": 40}])
    told = run(failure(build_model("openai-chat:m"), streamed, **{setting: 0.2}))
    assert told.transient and "time" in told.message and not told.message.endswith(": ")


@pytest.mark.parametrize(
    "error",
    [httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("cut"), ConnectionResetError("reset"), TimeoutError()],
    ids=lambda error: type(error).__name__,
)
def test_a_lost_connection_that_the_library_did_not_name_is_transient(error: Exception) -> None:
    assert classify(error).transient


def test_exhausted_credit_is_final_though_it_comes_as_a_rate_limit() -> None:
    error = ModelHTTPError.for_category(ModelQuotaExceededError, status_code=429, model_name="m", body="no credit")
    assert classify(error) == Failure(False, None, "The model m answered HTTP 429 Too Many Requests: no credit")


def test_a_used_up_limit_of_ours_is_final(endpoint: ScriptedModel, run: Run) -> None:
    async def two_calls() -> Failure:
        model = build_model("openai-chat:m")
        with pytest.raises(UsageLimitExceeded) as caught:
            async with model:
                await Agent(model).run("hi", usage_limits=UsageLimits(output_tokens_limit=1))
        return classify(caught.value)

    told = run(two_calls())
    assert not told.transient
    assert told.message.startswith("A limit of this run is used up: Exceeded the output_tokens_limit of 1")
    assert "docs" not in told.message


@pytest.mark.parametrize(
    "error",
    [UnexpectedModelBehavior("no tool of that name"), RunTimedOut("over")],
    ids=lambda error: type(error).__name__,
)
def test_what_another_try_does_not_change_is_final(error: Exception) -> None:
    told = classify(error)
    assert not told.transient and str(error.args[-1]) in told.message


@pytest.mark.parametrize(
    "error", [ValueError("a bug"), OSError(28, "no space")], ids=lambda error: type(error).__name__
)
def test_a73_what_no_provider_said_is_final_and_told_by_an_id_that_the_log_has_too(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    told = classify(error)
    assert not told.transient and re.fullmatch("Internal error [0-9a-f]{8}", told.message)
    assert told.message.removeprefix("Internal ") in caplog.text and str(error) in caplog.text


def test_a_message_is_one_line_of_bounded_length_and_cut_after_masking() -> None:
    """A cut through a secret would leave a piece of it that no pattern knows any more."""
    secret = "eyJhbGciOiJI.eyJzdWIiOiIx.c2ln"  # stands across the 300th character
    told = classify(ModelHTTPError(500, "m", f"first\nline {'x' * 278} {secret} {'y' * 300}"))
    assert "\n" not in told.message and "first line" in told.message
    assert "eyJ" not in told.message and "***" in told.message
    assert len(told.message) < 360 and told.message.endswith("…")
