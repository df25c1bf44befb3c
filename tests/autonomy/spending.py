"""Work that costs 1,000 tokens a call, and what the provider has billed for it."""

from collections.abc import Sequence
from typing import Any

from tests.cases.stories import calling
from tests.support.rules import Rule
from tests.support.scripted import Asked, ScriptedModel

COST = {"prompt_tokens": 900, "completion_tokens": 100}
CALL = 1000
SUMS = ("requests", "input_tokens", "output_tokens")
SEARCH = calling("memory_recall", query="it")
FOUND = "(?i)nothing found|reference"


def endless(prompt: str, **how: Any) -> list[Rule]:
    """A worker that says something, searches, says more, searches, and never ends."""
    return [
        Rule(last_user=f"^{prompt}$", text="The first part.", tool_calls=[SEARCH], usage=COST, **how),
        Rule(last_tool=FOUND, anywhere=f"(?m)^{prompt}$", text="More.", tool_calls=[SEARCH], usage=COST, **how),
    ]


def in_front(prompt: str, subagent_type: str = "general") -> dict[str, Any]:
    """A tool call that has this done by a subagent in the foreground."""
    return calling("task", description=prompt.upper(), prompt=prompt, subagent_type=subagent_type)


def answered(model: ScriptedModel) -> list[Asked]:
    """The requests to which the model gave an answer that was taken."""
    return [asked for asked in model.requests() if asked.answered_at and not asked.gone_at]


def billed(model: ScriptedModel, rules: Sequence[Rule]) -> dict[str, int]:
    """What the provider has counted, for all that it answered by these rules."""
    counts = [(Rule() if asked.rule is None else rules[asked.rule]).usage_counts for asked in answered(model)]
    return {
        "requests": len(counts),
        "input_tokens": sum(count["prompt_tokens"] for count in counts),
        "output_tokens": sum(count["completion_tokens"] for count in counts),
    }


def sums(usage: dict[str, Any]) -> dict[str, int]:
    """A usage without its tool calls, of which no provider knows."""
    return {name: usage[name] for name in SUMS}


def added(*usages: dict[str, Any]) -> dict[str, int]:
    return {name: sum(usage[name] for usage in usages) for name in SUMS}
