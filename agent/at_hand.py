"""At hand: what one turn's model may call that plugins and MCP servers have added, as it is when the turn begins.

Names that mean all of a server's tools become those tools. What is not there is left out: the fence closes on every doubt.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent import web_pages
from agent.gates import ASK_USER, Gates
from agent.mcp import Servers
from agent.mcp_servers import ALL, server_of
from agent.plugins import Plugins, PluginTool

ABSENT = "The tools of {} cannot be reached now; say so where they are wanted."


@dataclass(frozen=True)
class AtHand:
    """The `names` that a turn may call, and the `added` tools among them; `absent` are servers of which none is known."""

    names: tuple[str, ...]
    added: Mapping[str, PluginTool] = field(default_factory=dict)
    external: frozenset[str] = frozenset()  # those whose answers come from outside of this installation
    absent: tuple[str, ...] = ()

    def gates(self, *, parks: bool) -> Gates:
        """What of these tools waits for a person: those that were marked so, and `ask_user`."""
        approvals = {name: one.tool for name, one in self.added.items() if one.needs_approval}
        lasting = frozenset(name for name, one in self.added.items() if not one.stoppable)
        return Gates(approvals, asking=ASK_USER in self.names, parks=parks, lasting=lasting)

    def told(self, instructions: str) -> str:
        """The instructions, with which servers are not there."""
        return "\n\n".join([instructions, *([ABSENT.format(", ".join(self.absent))] if self.absent else [])])


async def at_hand(plugins: Plugins, servers: Servers, names: tuple[str, ...]) -> AtHand:
    """What these names mean now. A server that is just being tried is waited for, some seconds."""
    await servers.settled(names)
    theirs = servers.tools
    meant = tuple(dict.fromkeys(tool for name in names for tool in _meant(name, theirs)))
    there = {**theirs, **plugins.tools}
    return AtHand(
        names=meant,
        added={name: there[name] for name in meant if name in there},
        external=frozenset(name for name in meant if name in theirs or name == web_pages.NAME),
        absent=tuple(servers.absent(names)),
    )


def _meant(name: str, theirs: Iterable[str]) -> Iterable[str]:
    if not name.endswith(ALL):
        return [name]
    server = server_of(name)
    return [tool for tool in theirs if name == f"{server}_{ALL}" and server_of(tool) == server]
