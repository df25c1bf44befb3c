"""The rules of a scripted model: which request a rule fits, and what it then says. No I/O.

A rule without `last_tool` and `anywhere` does not fit a conversation that ends with a tool's result: a rule for what
the user said would otherwise answer again after each tool that it called.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

ALWAYS = 10**9


@dataclass(frozen=True)
class Rule:
    """All patterns given must be found. `{1}` in text, tool names and arguments is group 1 of the last that was."""

    last_user: str | None = None  # regex, in the newest user message
    last_tool: str | None = None  # regex, in the newest message, which must be a tool's result
    anywhere: str | None = None  # regex, in the whole conversation, system prompt and tool arguments included
    not_anywhere: str | None = None  # regex that must not be found anywhere
    tool_offered: str | None = None  # name of a tool that the request offers: tells a chat turn from a worker's
    times: int = ALWAYS  # answers at most this many requests

    text: str = ""
    repeat: tuple[str, int] | None = None  # (chunk, n): more text, of n copies of chunk
    reasoning: str = ""  # thought aloud before the text; alone, it is an answer with no content
    tool_calls: Sequence[
        dict[str, Any]
    ] = ()  # {"name", "arguments"?, "id"?}; providers do repeat ids: give one to try it
    finish_reason: str | None = None  # instead of stop or tool_calls
    usage: dict[str, int] | None = None  # {"prompt_tokens", "completion_tokens"}; default 10 and 10

    delay_s: float = 0  # waits before it answers
    gate: str | None = None  # answers only once the test has opened this gate
    until: str | None = None  # answers only while the test has not opened this gate: what is to recover
    status: int | None = None  # an HTTP error with `text` as its message instead
    headers: dict[str, str] = field(default_factory=dict)  # of that error, as {"Retry-After": "2"}
    cut_after: int | None = None  # sends this many characters, then drops the connection
    hang_after: int | None = None  # sends this many characters, then nothing more
    resumes: str | None = None  # and goes on after all, once the test has opened this gate

    @property
    def usage_counts(self) -> dict[str, int]:
        counts = {"prompt_tokens": 10, "completion_tokens": 10, **(self.usage or {})}
        return {**counts, "total_tokens": counts["prompt_tokens"] + counts["completion_tokens"]}


@dataclass(frozen=True)
class Answer:
    """A rule with its groups filled in."""

    rule: Rule
    text: str
    tool_calls: list[dict[str, Any]]

    @property
    def finish_reason(self) -> str:
        return self.rule.finish_reason or ("tool_calls" if self.tool_calls else "stop")


OTHERWISE = Answer(Rule(), "ok", [])


def text_of(message: dict[str, Any]) -> str:
    """A message's text, and the arguments of the tools it calls."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "\n".join(part.get("text", "") for part in content)
    return content + "".join(call["function"]["arguments"] for call in message.get("tool_calls") or ())


def fit(rule: Rule, body: dict[str, Any]) -> Answer | None:
    """The rule's answer to a request (its JSON body), or None where the rule is not for it."""
    messages = body["messages"]
    newest = messages[-1]
    users = [message for message in messages if message["role"] == "user"]
    everything = "\n".join(map(text_of, messages))
    after_tool = newest["role"] == "tool"
    searched = [
        (rule.last_user, text_of(users[-1]) if users else ""),
        (rule.last_tool, text_of(newest) if after_tool else None),
        (rule.anywhere, everything),
    ]
    if after_tool and rule.last_tool is None and rule.anywhere is None:
        return None
    if rule.not_anywhere is not None and re.search(rule.not_anywhere, everything):
        return None
    if rule.tool_offered is not None and rule.tool_offered not in offered(body):
        return None
    found = None
    for pattern, text in searched:
        if pattern is not None and (text is None or not (found := re.search(pattern, text))):
            return None
    return _filled(rule, found)


def offered(body: dict[str, Any]) -> set[str]:
    """Names of the tools that a request offers the model."""
    return {tool["function"]["name"] for tool in body.get("tools", ())}


def _filled(rule: Rule, found: re.Match[str] | None) -> Answer:
    groups = {str(number): group for number, group in enumerate(found.groups(), 1)} if found else {}

    def fill(value: Any) -> Any:
        if isinstance(value, str):
            return re.sub(r"\{(\d)\}", lambda number: groups.get(number[1]) or "", value)
        if isinstance(value, dict):
            return {key: fill(inner) for key, inner in value.items()}
        return [fill(inner) for inner in value] if isinstance(value, list) else value

    chunk, count = rule.repeat or ("", 0)
    return Answer(rule, fill(rule.text) + chunk * count, fill(list(rule.tool_calls)))
