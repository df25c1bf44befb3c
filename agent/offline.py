"""The model that a newcomer starts with: a script that does real work on real text, and says that it is a script.

It decides from the messages and the offered tools alone, so the same conversation always goes the same way. It opens no
connection, polls nothing, and counts no tokens, because it uses none. What it reads and writes is in `offline_text` and
`offline_words`.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponseStreamEvent,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext

from agent import offline_words as words
from agent.condensing import CONDENSING, condensed
from agent.memory_words import REMEMBERING, scripted
from agent.notifications import is_by_system
from agent.offline_text import (
    Ask,
    content_words,
    description_of,
    further_queries,
    is_notification,
    queries_for,
    read_ask,
    subject_of,
)
from agent.subagents import DETACHED

_NAME = "offline"
_HITS = 6
_PIECE = re.compile(r".{1,40}(?:\s+|$)|\S+\s*", re.DOTALL)


@dataclass
class Turn:
    """What has come since the last answer: what people asked, what ended, and the tools' results step by step."""

    asks: list[str] = field(default_factory=list)
    notifications: list[str] = field(default_factory=list)
    steps: list[list[str]] = field(default_factory=list)


@dataclass(frozen=True)
class Errand:
    """One thing to do in a turn: the tool calls it needs, made at once, and what to say with their results."""

    calls: tuple[tuple[str, dict[str, Any]], ...]
    say: Callable[[list[str]], str]


def respond(messages: list[ModelMessage], tools: Iterable[str], instructions: str) -> ModelResponse:
    """The next message of the conversation: the calls of the first errand not yet done, or else the answer."""
    turn = _read(messages)
    if REMEMBERING in instructions:
        return _message([TextPart(scripted("\n".join(turn.asks)))], "stop")
    if CONDENSING in instructions:
        return _message([TextPart(condensed("\n".join(turn.asks)))], "stop")
    errands = _plan(turn, set(tools), instructions)
    calling = [errand for errand in errands if errand.calls]
    if len(turn.steps) < len(calling):
        calls = calling[len(turn.steps)].calls
        return _message([ToolCallPart(name, arguments) for name, arguments in calls], "tool_call")
    results = iter(turn.steps)
    said = [errand.say(next(results) if errand.calls else []) for errand in errands]
    if turn.notifications:
        said.insert(0, words.briefing(turn.notifications))
    return _message([TextPart("\n\n---\n\n".join(said) or words.HELLO)], "stop")


def _message(parts: list[Any], finish: Any) -> ModelResponse:
    return ModelResponse(parts=parts, model_name=_NAME, provider_name=_NAME, finish_reason=finish)


def _read(messages: list[ModelMessage]) -> Turn:
    turn = Turn()
    for message in messages:
        if isinstance(message, ModelRequest):
            _add(turn, message)
        elif any(isinstance(part, ToolCallPart) for part in message.parts):
            turn.steps.append([])
        else:
            turn = Turn()  # an answer: what came before it is done with
    return turn


def _add(turn: Turn, request: ModelRequest) -> None:
    for part in request.parts:
        if isinstance(part, ToolReturnPart) and turn.steps:
            turn.steps[-1].append(part.model_response_str())
        elif isinstance(part, UserPromptPart):
            for text in [part.content] if isinstance(part.content, str) else part.content:
                text = text if isinstance(text, str) else getattr(text, "content", "")
                if isinstance(text, str) and text.strip():
                    if is_notification(text):
                        turn.notifications.append(text)
                    elif not is_by_system(text):
                        turn.asks.append(text)


def _plan(turn: Turn, tools: set[str], instructions: str) -> list[Errand]:
    if DETACHED in instructions:
        return [_research("\n\n".join(turn.asks), tools) if turn.asks else Errand((), lambda _: words.no_task())]
    asks = [read_ask(text) for text in turn.asks]
    if "task_batch" not in tools:  # nothing to send out with: what can be done is done here
        return [_talk() if ask.kind == "talk" else _research(ask.text, tools) for ask in asks]
    return [_errand(ask, tools) for ask in asks]


def _errand(ask: Ask, tools: set[str]) -> Errand:
    if ask.kind == "talk":
        return _talk()
    return _send(ask) if ask.kind == "send" else _look_up(ask, tools)


def _talk() -> Errand:
    return Errand((), lambda _: words.HELLO)


def _look_up(ask: Ask, tools: set[str]) -> Errand:
    if "memory_recall" not in tools:
        return Errand((), lambda _: words.no_search(ask.text))
    call = ("memory_recall", {"query": " ".join(content_words(ask.text)) or ask.text})
    return Errand((call,), lambda results: words.answer(ask.text, "\n".join(results)))


def _send(ask: Ask) -> Errand:
    tasks = [_task(subject, ask.also) for subject in ask.subjects]
    arguments: dict[str, Any] = {"tasks": tasks} if len(tasks) > 1 else dict(tasks[0])
    call = ("task_batch" if len(tasks) > 1 else "task", {**arguments, "run_in_background": ask.background})
    if not ask.background:
        return Errand((call,), lambda results: words.brought_back("\n\n".join(results)))
    descriptions = [task["description"] for task in tasks]
    return Errand((call,), lambda results: words.sent_out(descriptions, "\n".join(results)))


def _task(subject: str, also: str) -> dict[str, str]:
    prompt = f"Research {subject}. Write a report that cites its sources. {also}".strip()
    return {"description": description_of(subject), "prompt": prompt, "subagent_type": "researcher"}


def _research(task: str, tools: set[str]) -> Errand:
    if "memory_recall" not in tools:
        return Errand((), lambda _: f"**Summary.** {words.no_search(subject_of(task))}")
    queries = queries_for(task)
    asked = [*queries, *further_queries(queries[-1])]
    calls = tuple(("memory_recall", {"query": query, "limit": _HITS, "only": "documents"}) for query in asked)
    first = len(queries)
    return Errand(calls, lambda results: words.report(task, queries, results[:first], results[first:]))


class OfflineModel(Model):
    """The script as a model of the agent library; see the module."""

    @property
    def model_name(self) -> str:
        return _NAME

    @property
    def system(self) -> str:
        return _NAME

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """The whole response at once."""
        _, parameters = self.prepare_request(model_settings, model_request_parameters)
        return _respond(messages, parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """The same response in pieces of a few words."""
        _, parameters = self.prepare_request(model_settings, model_request_parameters)
        yield OfflineStream(model_request_parameters=parameters, response=_respond(messages, parameters))


def _respond(messages: list[ModelMessage], parameters: ModelRequestParameters) -> ModelResponse:
    told = [part.content for part in parameters.instruction_parts or []]
    for message in messages:
        if isinstance(message, ModelRequest):
            told += [message.instructions or ""]
            told += [part.content for part in message.parts if isinstance(part, SystemPromptPart)]
    return respond(messages, [tool.name for tool in parameters.function_tools], "\n".join(told))


@dataclass
class OfflineStream(StreamedResponse):
    """A finished response, told piece by piece."""

    response: ModelResponse

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        self.finish_reason = self.response.finish_reason
        for number, part in enumerate(self.response.parts):
            if isinstance(part, ToolCallPart):
                yield self._parts_manager.handle_tool_call_part(
                    vendor_part_id=number,
                    tool_name=part.tool_name,
                    args=part.args_as_dict(),
                    tool_call_id=part.tool_call_id,
                )
            elif isinstance(part, TextPart):
                for piece in _PIECE.findall(part.content):
                    if self.cancelled:
                        return
                    for event in self._parts_manager.handle_text_delta(vendor_part_id=number, content=piece):
                        yield event
                    await asyncio.sleep(0)  # lets each piece reach whoever listens before the next is made

    async def close_stream(self) -> None:
        """Nothing is open; a stream that was canceled stops before its next piece."""

    @property
    def model_name(self) -> str:
        return _NAME

    @property
    def provider_name(self) -> str:
        return _NAME

    @property
    def provider_url(self) -> None:
        return None

    @property
    def timestamp(self) -> datetime:
        return self.response.timestamp
