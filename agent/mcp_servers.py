"""What `[mcp.NAME]` says of an MCP server, and what such a server offers. Values; they connect to nothing."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from background.credentials import names_credential

NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")  # no underscore: that is where a tool's own name begins
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what all providers take
ALL = "*"


class Filled(str):
    """A text with values in it that were `taken` from the environment."""

    taken: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str, taken: Iterable[str]) -> "Filled":
        """The text, with what was taken for it."""
        made = cls(text)
        made.taken = tuple(taken)
        return made


@dataclass(frozen=True)
class McpServer:
    """One server: started with `command`, or reached at `url`. `env` and `headers` may hold secrets, and are never shown.

    `tools` are those of its tools that are used, by their names there; None for all. `needs_approval` are those of which
    each call needs its user's approval, or True for all. `timeout_s` is for one call.
    """

    name: str
    command: str | None = None
    args: tuple[str, ...] = field(default=(), repr=False)
    env: dict[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str | None = field(default=None, repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    tools: tuple[str, ...] | None = None
    needs_approval: tuple[str, ...] | bool = ()
    timeout_s: float = 60

    @property
    def secrets(self) -> list[str]:
        """What must not be repeated of it: what came from the environment, and what is named as a credential is. The
        longest first; very short ones are in every text, and hide nothing.
        """
        named = [value.split()[-1:] for name, value in (self.env | self.headers).items() if names_credential(name)]
        taken = [one.taken for one in (*self._texts, self.url) if isinstance(one, Filled)]
        return sorted({one for some in (*named, *taken) for one in some if len(one) >= 6}, key=len, reverse=True)

    @property
    def _texts(self) -> list[str]:
        return [*self.env.values(), *self.headers.values(), *self.args]

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
