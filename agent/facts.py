"""What may be told of a model's answer at any answer level: who gave it, what it cost, and which tools it calls, and no word of it."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart

from background.text import clean, clip
from background.usage import Usage

MOST_CALLS = 64  # of one answer
NAME_CHARS = 64


def facts_of(messages: Sequence[ModelMessage], providers: Iterable[str], below: Usage) -> dict[str, Any]:
    """JSON: the model's name, what it cost, with what subagents had meanwhile (`below`), and the calls' tools by call id;
    with all providers that the turn has asked so far.
    """
    answers = [message for message in messages if isinstance(message, ModelResponse)]
    calls = [part for answer in answers for part in answer.parts if isinstance(part, ToolCallPart)]
    return {
        "providers": sorted(map(_name, providers)),
        "model": _name(answers[-1].model_name if answers else ""),
        "requests": below.requests + len(answers),
        "input_tokens": below.input_tokens + sum(answer.usage.input_tokens for answer in answers),
        "output_tokens": below.output_tokens + sum(answer.usage.output_tokens for answer in answers),
        "calls": {_name(call.tool_call_id): _name(call.tool_name) for call in calls[:MOST_CALLS]},
    }


def _name(given: str | None) -> str:
    return clip(clean(given or ""), NAME_CHARS)
