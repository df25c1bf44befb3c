"""The one driver of the agent library: a turn, step by step, each step kept before the next begins.

It resumes from the last model answer that was kept: tools whose results are stored answer from their rows, and only
the missing ones run. A step whose calls wait for a person is entered only when it has all answers. It knows no row and
no session; what it must keep and take up goes through `Steps`.
"""

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic_ai import Agent, CallToolsNode, ModelRequestNode, ModelRetry, RunContext, direct
from pydantic_ai.capabilities import AbstractCapability, RawToolArgs
from pydantic_ai.exceptions import SkipToolValidation
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from pydantic_core import to_jsonable_python

from agent import memory, tracing
from agent.cutting import Cutting
from agent.gates import Gates
from agent.guard import Guard
from agent.notifications import harmless
from agent.windows import UNKNOWN, Window
from background.text import clean

MAX_STEPS = 64
TOOL_RETRIES = 20  # the library counts a denied call as one; the steps bound them all


class Steps(Protocol):
    """What a turn gives the loop: where steps are kept, and what comes in between them."""

    @property
    def stored(self) -> Mapping[str, str]: ...

    async def keep_answer(self, number: int, messages: str) -> Collection[int]:
        """Returns the places of the calls, among the answer's, that are not kept as they are."""
        ...

    async def begin_call(self, key: str, name: str) -> None:
        """A tool is called that cannot be stopped, at this step."""
        ...

    async def keep_tool_result(self, name: str, result: str) -> None: ...

    async def take_up(self, number: int) -> list[str]:
        """What came meanwhile, for the model's next step; `number` answers were given before."""
        ...

    def say(self, text: str) -> None:
        """A piece of text as it comes; not kept."""
        ...


class Unkept:
    """The steps of a turn that is run again from its start after a crash."""

    stored: Mapping[str, str] = {}

    async def keep_answer(self, number: int, messages: str) -> Collection[int]:
        """Not kept, so there is no copy to go on from."""
        return ()

    async def begin_call(self, key: str, name: str) -> None:
        """Not kept."""

    async def keep_tool_result(self, name: str, result: str) -> None:
        """Not kept."""

    async def take_up(self, number: int) -> list[str]:
        return []

    def say(self, text: str) -> None:
        """Nobody listens."""


@dataclass
class Progress:
    """How far a turn has come: readable at any moment, also after it was cut off."""

    history: list[ModelMessage]
    turn: list[ModelMessage] = field(default_factory=list)
    unfinished: str = ""

    @property
    def answers(self) -> list[ModelResponse]:
        return [message for message in self.turn if isinstance(message, ModelResponse)]

    @property
    def texts(self) -> list[str]:
        """The text of each answer of this turn that has any, and what came of one that broke off."""
        texts = [clean(answer_text(answer)) for answer in self.answers]
        return [text for text in [*texts, clean(self.unfinished)] if text.strip()]

    @property
    def final_texts(self) -> list[str]:
        """The texts with which the turn came to an end: one, and one more for each message that then took it up again."""
        texts = [clean(answer_text(answer)) for answer in self.answers if not calls_of(answer)]
        return [text for text in texts if text.strip()]

    @property
    def final(self) -> ModelResponse | None:
        """The last answer, if it calls no tool: the turn is at its end."""
        last = self.answers[-1] if self.answers else None
        return last if last and not calls_of(last) else None


def answer_text(answer: ModelResponse) -> str:
    """All text parts of an answer, in order, without its thoughts."""
    return "\n\n".join(part.content for part in answer.parts if isinstance(part, TextPart) and part.content)


def calls_of(answer: ModelResponse) -> list[ToolCallPart]:
    return [part for part in answer.parts if isinstance(part, ToolCallPart)]


def user_message(*texts: str) -> ModelRequest:
    """One request with a user-role message for each text."""
    return ModelRequest(parts=[UserPromptPart(text) for text in texts])


def dump(messages: Sequence[ModelMessage]) -> str:
    """Messages as they are kept, without what memory gives anew to each turn."""
    return ModelMessagesTypeAdapter.dump_json(memory.without(messages)).decode()


def load(messages: str) -> list[ModelMessage]:
    return ModelMessagesTypeAdapter.validate_json(messages)


class TooManySteps(Exception):
    """The model went on calling tools past `MAX_STEPS` answers."""


class Stalled(Exception):
    """The model gave nothing for too long."""


class ModelCallFailed(Exception):
    """A model call raised its `__cause__`; `agent/models.py` says what that means."""


class UnfinishedAnswer(Exception):
    """The model ended its answer for another reason than having finished; `cause` is the library's word for it."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


async def drive(
    model: Model,
    instructions: str,
    toolset: AbstractToolset[Any],
    progress: Progress,
    opening: ModelRequest,
    steps: Steps,
    stall_s: float,
    gates: Gates = Gates(),  # noqa: B008 - frozen
    room: int = Window(UNKNOWN).room,
) -> None:
    """Run a turn to its end, or go on with it; what came of it stands in `progress`. No request holds more than `room` tokens.

    Raises `Parks` where a call waits for a person, `ModelCallFailed`, `Stalled`, `TooManySteps`, `KeepsAsking`,
    `UnfinishedAnswer`, or what a tool raised.
    """
    progress.turn = memory.put_back(kept_of(steps.stored), opening)
    lost = _lost_blocks(steps.stored, len(progress.answers))
    if progress.final and not lost:
        _check_finish(progress.final)
        return
    guard = Guard(gates, steps.stored, lambda: [calls_of(answer) for answer in progress.answers])
    guard.require_answers()
    agent: Agent[Any, str] = Agent(
        model,
        instructions=instructions,
        toolsets=[_Kept(toolset, steps, guard, gates.lasting)],
        capabilities=[
            _Settled(guard),
            Cutting(room, sum(isinstance(each, ModelResponse) for each in progress.history)),
        ],
        retries={"tools": TOOL_RETRIES, "output": 0},
        model_settings={"max_retries": 0},  # trying again is the queue's, where a pause survives a restart
    )
    messages = [*progress.history, *progress.turn]
    if not progress.turn:
        messages.append(ModelRequest(parts=[*opening.parts, *user_message(*lost).parts]))
    elif progress.final:  # it had ended, and a message has taken it up again
        messages.append(user_message(*lost))
    async with agent.iter(None, message_history=messages) as run:
        if progress.turn and not progress.final:
            for block in lost:
                run.enqueue(block)
        await _walk(run, progress, steps, guard, stall_s)


async def _walk(run: AgentRun[Any, Any], progress: Progress, steps: Steps, guard: Guard, stall_s: float) -> None:
    node = run.next_node
    while True:
        if isinstance(node, ModelRequestNode):
            number = len(progress.answers)
            if number >= MAX_STEPS:
                raise TooManySteps
            for block in await steps.take_up(number) if number else []:
                run.enqueue(block)
            guard.before_request()
            await _ask(run, node, progress, steps, stall_s)
        elif isinstance(node, CallToolsNode):
            await _keep(run, progress, steps, guard)
            if progress.final:
                _check_finish(progress.final)
                return
            guard.require_answers()
        node = await run.next(node)  # type: ignore[arg-type]


async def _ask(
    run: AgentRun[Any, Any], node: ModelRequestNode[Any, Any], progress: Progress, steps: Steps, stall_s: float
) -> None:
    """One model call. Each thing that comes from the model is a sign of life."""
    progress.unfinished = ""
    try:
        with tracing.step("model call") as span:
            async with _alive(stall_s) as sign_of_life, node.stream(run.ctx) as stream:
                async for event in stream:
                    sign_of_life()
                    if piece := _piece(event):
                        progress.unfinished += piece
                        steps.say(piece)
                tracing.told_of_answer(span, stream.response)
    except Stalled:
        raise
    except Exception as error:
        raise ModelCallFailed from error


def _piece(event: object) -> str:
    match event:
        case PartStartEvent(part=TextPart(content=content)):
            return content
        case PartDeltaEvent(delta=TextPartDelta(content_delta=content)):
            return content
    return ""


@asynccontextmanager
async def _alive(stall_s: float):
    loop = asyncio.get_running_loop()
    deadline = asyncio.timeout(stall_s)
    try:
        async with deadline:
            yield lambda: deadline.reschedule(loop.time() + stall_s)
    except TimeoutError as error:
        if deadline.expired():
            raise Stalled from error
        raise


async def _keep(run: AgentRun[Any, Any], progress: Progress, steps: Steps, guard: Guard) -> None:
    """Keep the newest answer with the request before it, unless it is what this run began with."""
    # Told by the answers before it and not by the messages: the library makes one of two requests in a row.
    known = sum(isinstance(message, ModelResponse) for message in [*progress.history, *progress.turn])
    fresh = _after_answers(run.all_messages(), known)
    if not any(isinstance(message, ModelResponse) for message in fresh):
        return
    progress.turn += fresh
    progress.unfinished = ""
    guard.kept_altered(await steps.keep_answer(len(progress.answers), dump(fresh)))


def _after_answers(messages: list[ModelMessage], known: int) -> list[ModelMessage]:
    """The messages behind so many answers."""
    ends = [place for place, message in enumerate(messages, 1) if isinstance(message, ModelResponse)]
    return messages[ends[known - 1] if known else 0 :]


async def ask_once(model: Model, instructions: str, said: str, stall_s: float) -> ModelResponse:
    """One model call outside of a turn's steps, without tools. Raises `ModelCallFailed` and `Stalled`."""
    request = ModelRequest(parts=[UserPromptPart(said)], instructions=instructions)
    try:
        with tracing.step("model call") as span:
            async with _alive(stall_s):
                answer = await direct.model_request(model, [request], model_settings={"max_retries": 0})
            tracing.told_of_answer(span, answer)
            return answer
    except Stalled:
        raise
    except Exception as error:
        raise ModelCallFailed from error


def _check_finish(answer: ModelResponse) -> None:
    if answer.finish_reason in ("length", "content_filter", "error"):
        raise UnfinishedAnswer(answer.finish_reason)


def kept_of(stored: Mapping[str, str]) -> list[ModelMessage]:
    """How far a turn has come: its answers that were kept, with the requests before them."""
    return [message for _, content in _answers(stored) for message in load(content)]


def _answers(stored: Mapping[str, str]) -> list[tuple[int, str]]:
    numbered = [(int(name.partition(":")[2]), content) for name, content in stored.items() if name.startswith("model:")]
    return sorted(numbered)


def _lost_blocks(stored: Mapping[str, str], answers: int) -> list[str]:
    """Blocks that were taken up after the last answer that was kept: no stored history has them yet."""
    return [
        content for name, content in stored.items() if name.startswith("fold:") and int(name.split(":")[1]) >= answers
    ]


@dataclass
class _Settled(AbstractCapability[Any]):
    """A call whose result is settled is not held to its tool's schema: its masked arguments may not fit any more."""

    guard: Guard

    async def before_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: RawToolArgs
    ) -> RawToolArgs:
        if self.guard.settled(call.tool_name, call.tool_call_id):
            raise SkipToolValidation({})
        return args


@dataclass
class _Kept(WrapperToolset[Any]):
    """Every tool's result is kept under the step's key; one that is kept is not made again."""

    steps: Steps
    guard: Guard
    lasting: frozenset[str]

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """All tools, and none after the last refusal."""
        return {} if self.guard.disarmed else await super().get_tools(ctx)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        key = self.guard.key_of(ctx.tool_call_id or "")
        stored = self.steps.stored.get(key)
        if stored is not None:
            return json.loads(stored)
        result = self.guard.verdict(name, ctx.tool_call_id or "")
        if result is None:
            if name in self.lasting:
                await self.steps.begin_call(key, name)
            with tracing.step("tool call", tool=name):
                result = await self._called(name, tool_args, ctx, tool)
        kept = json.dumps(_cleaned(to_jsonable_python(result)), ensure_ascii=False)
        await self.steps.keep_tool_result(key, kept)
        return json.loads(kept)

    async def _called(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        try:
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        except ModelRetry as again:
            raise ModelRetry(harmless(again.message)) from again


def _cleaned(value: Any) -> Any:
    """A tool's result as it is kept and told: it can be stored, and speaks in no tag of the system's."""
    match value:
        case str():
            return harmless(clean(value))
        case list():
            return [_cleaned(item) for item in value]
        case dict():
            return {harmless(clean(key)): _cleaned(item) for key, item in value.items()}
    return value
