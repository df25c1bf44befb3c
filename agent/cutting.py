"""Cutting: where a request would be larger than its model takes, the oldest of what tools brought gives way.

Only what is sent is cut, and a line in its place says so; what is kept of the turn stays whole. What people said and the
model answered is never cut.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart
from pydantic_ai.models import ModelRequestContext

from agent.windows import BYTES, tokens_in, tokens_of, tokens_of_tools

STAYS = 800  # characters of a result that is not worth cutting
CUT = "(A result of {tool} stood here, {chars:,} characters, and was left out to make room. Call the tool again if it is needed.{jobs})"
SHORTENED = "\n\n(The rest of this result, {chars:,} characters, was left out to make room.)"
JOB = re.compile(r"\bbg-[0-9a-f]{12}\b")
MOST_JOBS = 64  # that a cut result still names
Key = tuple[str, str]  # by which a result is known again: its call, and its text


@dataclass
class Cutting(AbstractCapability[Any]):
    """Holds each request of a turn to `room` tokens. What was cut once stays cut, so that providers can cache the rest.

    `before` is how many answers the turn began with: by the usage of its own the provider says how large requests are.
    """

    room: int
    before: int
    cut: dict[Key, str] = field(default_factory=dict)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Cut what is sent, and not what the library keeps of the turn."""
        messages = self._as_cut(list(request_context.messages))
        parameters = request_context.model_request_parameters
        told = "".join(part.content for part in parameters.instruction_parts or ())
        around = tokens_of_tools(parameters.function_tools) + tokens_in(told)
        if (size := self._size(messages, around)) > self.room:
            self._choose(messages, size - self.room * 2 // 3)  # at once enough for a while
            messages = self._as_cut(messages)
        request_context.messages = messages
        return request_context

    def _size(self, messages: Sequence[ModelMessage], around: int) -> int:
        """The tokens of a request: as its text is long, or as its provider has counted the last one, whichever is more."""
        answers = [place for place, message in enumerate(messages) if isinstance(message, ModelResponse)]
        about = tokens_of(messages) + around
        if len(answers) <= self.before:
            return about
        last = messages[answers[-1]]
        assert isinstance(last, ModelResponse)
        named = last.usage.input_tokens + last.usage.output_tokens
        return max(about, named + tokens_of(messages[answers[-1] + 1 :]))

    def _as_cut(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        return [self._with_cuts(message) if isinstance(message, ModelRequest) else message for message in messages]

    def _with_cuts(self, message: ModelRequest) -> ModelRequest:
        found = {place: self.cut.get(key) for place, key, _ in _results(message)}
        if not any(found.values()):
            return message
        parts = [
            replace(part, content=line) if isinstance(part, ToolReturnPart) and (line := found.get(place)) else part
            for place, part in enumerate(message.parts)
        ]
        return replace(message, parts=parts)

    def _choose(self, messages: Sequence[ModelMessage], tokens: int) -> None:
        """Cut old results, the oldest first, until so many tokens are saved; what came last is only shortened."""
        *older, newest = messages
        for _, key, tool in (found for message in older for found in _results(message)):
            if tokens <= 0:
                return
            tokens -= self._cut(key, _line(tool, key[1]))
        for _, key, _ in sorted(_results(newest), key=lambda found: -len(found[1][1])):
            if tokens > 0:
                tokens -= self._cut(key, _head(key[1], tokens))

    def _cut(self, key: Key, line: str) -> int:
        """Returns how many tokens that saves."""
        self.cut[key] = line
        return tokens_in(key[1]) - tokens_in(line)


def _results(message: ModelMessage) -> Iterator[tuple[int, Key, str]]:
    """What tools brought that is long: its place among the parts, by what it is known again, and its tool."""
    for place, part in enumerate(message.parts):
        if isinstance(part, ToolReturnPart):
            content = part.model_response_str()
            if len(content) > STAYS:
                yield place, (part.tool_call_id, content), part.tool_name


def _line(tool: str, content: str) -> str:
    """What stands in a result's place; the jobs that it named are still named."""
    named = list(dict.fromkeys(JOB.findall(content)))[:MOST_JOBS]
    jobs = f" It named {', '.join(named)}." if named else ""
    return CUT.format(tool=tool, chars=len(content), jobs=jobs)


def _head(content: str, tokens: int) -> str:
    """The beginning of a result that is to be so many tokens shorter, if that leaves anything."""
    kept = content.encode(errors="replace")[: -tokens * BYTES].decode(errors="ignore")
    left_out = SHORTENED.format(chars=len(content) - len(kept))
    return kept[: max(0, len(kept) - len(left_out))] + left_out
