"""What `[mcp.NAME]` says of an MCP server, and what such a server offers. Values; they connect to nothing."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")  # no underscore: that is where a tool's own name begins
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what all providers take
ALL = "*"


@dataclass(frozen=True)
class McpServer:
    """One server: started with `command`, or reached at `url`. `env` and `headers` may hold secrets, and are never shown.

    `tools` are those of its tools that are used, by their names there; None for all. `needs_approval` are those of which
    each call needs its user's approval, or True for all. `timeout_s` is for one call.
    """

    name: str
    command: str | None = None
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tools: tuple[str, ...] | None = None
    needs_approval: tuple[str, ...] | bool = ()
    timeout_s: float = 60

    @property
    def secrets(self) -> list[str]:
        """What must not be repeated of it. Very short values are in every text, and hide nothing."""
        values = [*self.env.values(), *(word for value in self.headers.values() for word in value.split())]
        return sorted((value for value in values if len(value) >= 6), key=len, reverse=True)

    def asks(self, tool: str) -> bool:
        """Whether each call of a tool of its own needs an approval."""
        return self.needs_approval if isinstance(self.needs_approval, bool) else tool in self.needs_approval

    def full(self, tool: str) -> str:
        """The name by which a tool of its own is known here."""
        return f"{self.name}_{tool}"


@dataclass(frozen=True)
class Found:
    """A tool as a server describes it, by its name there."""

    name: str
    description: str
    schema: dict[str, Any]


def server_of(tool: str) -> str:
    """The name of the server that a tool of this name would be of."""
    return tool.partition("_")[0]
