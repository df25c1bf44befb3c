"""Whom a conversation is sent to, told before each request is made, and what the request has cost, told after it.

A turn says with `before_requests` and `after_answers` who wants to know; a fallback's request is told like any other,
and so is one of a foreground subagent. It decides nothing about what a provider may be sent.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import RequestUsage

from background.ceilings import LEVELS, strictest
from background.usage import Usage

Before = Callable[[str], Awaitable[None]]
After = Callable[[Usage], None]
_before: ContextVar[Before | None] = ContextVar("before a request", default=None)
_after: ContextVar[After | None] = ContextVar("after an answer", default=None)
_ONE_PROVIDER = {"openai-chat": "openai", "openai-responses": "openai", "google-gla": "google"}  # ways to the same


def provider_of(model: str) -> str:
    """The provider in a model's name: of `openai:gpt-5` it is `openai`, of `offline` `offline`."""
    provider = model.partition(":")[0]
    return _ONE_PROVIDER.get(provider, provider)


def levels_by_provider(given: Mapping[str, str]) -> dict[str, str]:
    """Answer levels, given under any name of a provider, under the one that is told; the strictest of several."""
    found: dict[str, str] = {}
    for name, level in given.items():
        provider = provider_of(name)
        found[provider] = strictest(level, found.get(provider, LEVELS[0]))
    return found


def providers_of(model: Model) -> set[str]:
    """All that a model that `build_model` made may ask, its fallbacks too."""
    if isinstance(model, FallbackModel):
        return set().union(*(providers_of(each) for each in model.models))
    return {model.provider_name} if isinstance(model, Announced) else set()


@contextmanager
def before_requests(tell: Before) -> Iterator[None]:
    """Inside, `tell(provider)` is awaited before each request to a model that `build_model` made.

    What it raises keeps that request from being made. A signal (no `Exception`) ends the turn; an `Exception` could be
    taken for a failure of the provider's, after which the next one would be tried.
    """
    token = _before.set(tell)
    try:
        yield
    finally:
        _before.reset(token)


@contextmanager
def after_answers(tell: After) -> Iterator[None]:
    """Inside, `tell(usage)` is called with what each request to such a model has cost, as soon as that is known.

    Of one that broke off it is what its provider had said of that until then; where it had said nothing, nothing is told.
    """
    token = _after.set(tell)
    try:
        yield
    finally:
        _after.reset(token)


def _tell_cost(answer: ModelResponse, *, whole: bool) -> None:
    tell = _after.get()
    cost = Usage(1, answer.usage.input_tokens, answer.usage.output_tokens, len(answer.tool_calls))
    if tell is not None and (whole or cost.tokens):
        tell(cost)


def announced(model: Model) -> Model:
    """A model whose requests are told, whoever made it."""
    return model if providers_of(model) else Announced(model, model.system)


@dataclass(init=False)
class Announced(WrapperModel):
    """A model whose requests are told before they are made, and what each has cost after it."""

    def __init__(self, wrapped: Model, provider: str) -> None:
        super().__init__(wrapped)
        self.provider_name = provider

    async def _announce(self) -> None:
        tell = _before.get()
        if tell is not None:
            await tell(self.provider_name)

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        await self._announce()
        answer = await super().request(messages, model_settings, model_request_parameters)
        _tell_cost(answer, whole=True)
        return answer

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        await self._announce()
        async with super().request_stream(messages, model_settings, model_request_parameters, run_context) as response:
            whole = False
            try:
                yield response
                whole = True
            finally:
                _tell_cost(response.get(), whole=whole)

    async def count_tokens(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> RequestUsage:
        await self._announce()
        return await super().count_tokens(messages, model_settings, model_request_parameters)

    async def compact_messages(
        self, request_context: ModelRequestContext, *, instructions: str | None = None
    ) -> ModelResponse:
        await self._announce()
        answer = await super().compact_messages(request_context, instructions=instructions)
        _tell_cost(answer, whole=True)
        return answer
