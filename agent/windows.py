"""Windows: how many tokens a request to a model may hold, and about how many tokens messages are.

A token is taken for four bytes of text, which errs to the safe side for most of what is written. It asks no model and
changes no message.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

UNKNOWN = 32_000  # tokens, of a model of which nothing is known
MOST = 128_000  # also where a model would take more: each turn pays for all that it is given
BYTES = 4  # a token
FRAME = 4  # tokens around each part


@dataclass(frozen=True)
class Window:
    """All that a model takes at once, in tokens, its answer included."""

    tokens: int

    @property
    def room(self) -> int:
        """What a request may hold; the rest is the answer's."""
        return self.tokens * 3 // 4

    @property
    def half(self) -> "Window":
        """A window of half the size: for a model that has refused what should have fitted."""
        return Window(self.tokens // 2)


def window_of(model: Model, most: int | None = None) -> Window:
    """What is known of the model, and no more than `most`; of an unknown one `most` itself."""
    known = model.context_window
    if known is None:
        return Window(most or UNKNOWN)
    return Window(min(known, most or MOST))


def tokens_in(text: str) -> int:
    """About how many tokens a text is."""
    return len(text.encode(errors="replace")) // BYTES


def tokens_of(messages: Sequence[ModelMessage]) -> int:
    """About how many tokens these messages are, instructions left out."""
    return sum(FRAME + tokens_in(text_of(part)) for message in messages for part in message.parts)


def tokens_of_tools(tools: Iterable[ToolDefinition]) -> int:
    """About how many tokens it takes to offer these tools."""
    told = [[tool.name, tool.description, tool.parameters_json_schema] for tool in tools]
    return tokens_in(json.dumps(told))


def known_tools(toolset: AbstractToolset[Any]) -> list[ToolDefinition]:
    """The tools of a set that can be named without asking a server for them."""
    found: list[ToolDefinition] = []

    def look(leaf: AbstractToolset[Any]) -> None:
        if isinstance(leaf, FunctionToolset):
            found.extend(tool.tool_def for tool in leaf.tools.values())

    toolset.apply(look)
    return found


def text_of(part: object) -> str:
    """What a part of a message says, whatever it is; of a call its tool and arguments."""
    if isinstance(part, ToolCallPart):
        return f"{part.tool_name} {part.args_as_json_str()}"
    content = getattr(part, "content", None)
    return content if isinstance(content, str) else json.dumps(content, default=str, ensure_ascii=False)


def instructions_of(messages: Sequence[ModelMessage]) -> str:
    """The instructions that the newest request carries."""
    for message in reversed(messages):
        if isinstance(message, ModelRequest) and message.instructions:
            return message.instructions
    return ""
