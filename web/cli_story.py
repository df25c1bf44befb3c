"""How a job's story is printed: a line for each thing that happened, in order. It asks no server."""

from typing import Any

from web.cli_views import line

WHAT_CHARS = 20


def story_text(told: dict[str, Any]) -> str:
    """The story, and what of it is still to come."""
    lines = [_line(str(one.pop("at")), str(one.pop("what")), one) for one in map(dict, told["story"])]
    for waits in map(dict, told["waiting"]):
        due, kind, state = waits.pop("due_at"), waits.pop("kind"), waits.pop("state")
        lines.append(_line(str(due), f"({kind} {state})", waits))
    return "\n".join(lines)


def _line(at: str, what: str, facts: dict[str, Any]) -> str:
    """The error last: it is in words."""
    error = facts.pop("error", None)
    said = " ".join(f"{name}={_value(value)}" for name, value in facts.items() if value is not None)
    words = f"  {line(error)}" if error else ""
    return f"{line(at)}  {line(what):<{WHAT_CHARS}} {line(said)}{words}".rstrip()


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}:{count}" for name, count in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
