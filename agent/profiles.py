"""Profiles: what an A2A client may ask for. A value each, and which of them are offered here.

Owns their names and fields and what each resolves to (level, guard, whether it can be used now). It runs nothing, and
reads no file: `web/settings.py` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

AGENT = "agent"  # the handler that drives a model
CHAT = "chat"  # the profile of messages that name none, and of Outrider's own


@dataclass(frozen=True)
class Profile:
    """One profile. None in a field means that nothing was said: what then holds stands in `Profiles`.

    `tools` are the names of the only tools that its model may call; `max_open_tasks` are one user's at once;
    `input_schema` and `output_schema` are JSON Schema, as an object or as JSON text.
    """

    name: str
    description: str
    handler: str = AGENT
    model: str | None = None
    instructions: str | None = None
    tools: tuple[str, ...] | None = None
    answer_level: str | None = None
    output_guard: bool | None = None
    input_schema: Any = None
    output_schema: Any = None
    max_open_tasks: int | None = None
    retention_days: int | None = None


BUILTIN: Mapping[str, Profile] = {
    CHAT: Profile(
        CHAT,
        "A conversation that stays live while subagents work in the background; what they find out comes back as one "
        "briefing.",
    ),
    "echo": Profile(
        "echo",
        "Answers with what it was sent, without a model; for load and conformance tests.",
        handler="echo",
    ),
}
