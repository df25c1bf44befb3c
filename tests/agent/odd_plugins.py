"""Plugins that a test loads one at a time, most of them broken in a way of their own."""

from typing import Any

from agent.subagents import SubagentType

SECRET = "secret-of-a-plugin"


async def good_handler(work: Any) -> str:
    return "good"


async def good_tool(word: str) -> str:
    """Says a word."""
    return f"said {word}"


def sync_tool(word: str) -> str:
    """Says a word, in a thread."""
    return f"said {word}"


async def failing_tool(word: str) -> str:
    """Fails."""
    raise RuntimeError(SECRET)


def good(outrider: Any) -> None:
    outrider.handler("good", good_handler)
    outrider.tool(good_tool)
    outrider.tool(sync_tool, needs_approval=True)
    outrider.tool(failing_tool)
    outrider.subagent(SubagentType("good-kind", "Good.", "Be good.", tools=("good_tool", "memory_recall")))


def second(outrider: Any) -> None:
    outrider.handler("second", good_handler)


def raises(outrider: Any) -> None:
    outrider.handler("half", good_handler)
    raise RuntimeError(SECRET)


def exits(outrider: Any) -> None:
    raise SystemExit(3)


async def is_async(outrider: Any) -> None:
    outrider.handler("never", good_handler)


def takes_a_name(outrider: Any) -> None:
    outrider.tool(lambda: None)
    outrider.handler("echo", good_handler)


def same_handler(outrider: Any) -> None:
    outrider.handler("good", good_handler)


def same_tool(outrider: Any) -> None:
    outrider.tool(good_tool)


def our_tool(outrider: Any) -> None:
    async def memory_recall(query: str) -> str:
        """Recalls something else."""
        return query

    outrider.handler("half", good_handler)
    outrider.tool(memory_recall)


def no_tool(outrider: Any) -> None:
    outrider.tool("good_tool")


def odd_tool(outrider: Any) -> None:
    async def odd(word: "Nowhere") -> str:  # noqa: F821 # pyright: ignore[reportUndefinedVariable]
        """Has an annotation that means nothing."""
        return str(word)

    outrider.tool(odd)


def odd_kind(outrider: Any) -> None:
    outrider.subagent({"name": "kind"})


def same_kind(outrider: Any) -> None:
    outrider.subagent(SubagentType("researcher", "Another.", "Another."))


def kind_without_tool(outrider: Any) -> None:
    outrider.subagent(SubagentType("kind", "A kind.", "A kind.", tools=("no_such_tool",)))


def odd_guard(outrider: Any) -> None:
    outrider.output_guard("no")


def odd_redactor(outrider: Any) -> None:
    outrider.redactor(lambda text: None)


def async_redactor(outrider: Any) -> None:
    async def redact(text: str) -> str:
        return text

    outrider.redactor(redact)


def redactor(outrider: Any) -> None:
    outrider.redactor(str.upper)


def second_redactor(outrider: Any) -> None:
    outrider.redactor(str.lower)


no_function = "nothing to call"
