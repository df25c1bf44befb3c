"""The MCP servers of this process: their tools beside those of plugins, what is wrong with them, their beginning and end.

The client's library is loaded only where a server is set; it is an extra. One connection is kept for each server and
process, whoever calls.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from agent.mcp_servers import ALL, McpServer, server_of
from agent.plugins import PluginTool

if TYPE_CHECKING:
    from agent.mcp_connection import Connection

INSTALL = "its library is not installed; install it with: pip install 'outrider[mcp]'"


class ServersNotReady(ValueError):
    """Servers are set and cannot be used here; the text is one line that says what to install."""


class Servers:
    """All servers. Made before the event loop runs; `start` begins to connect. Raises `ServersNotReady`.

    No tool of theirs gets a name that is `taken`.
    """

    def __init__(self, servers: Mapping[str, McpServer] | None = None, taken: Collection[str] = ()) -> None:
        self._connections = _connections(servers, taken) if servers else {}

    @property
    def names(self) -> Collection[str]:
        """The names of all servers, whether they are there or not."""
        return self._connections.keys()

    @property
    def problems(self) -> list[str]:
        """What does not work of them now."""
        return [problem for one in self._connections.values() for problem in one.problems]

    @property
    def tools(self) -> dict[str, PluginTool]:
        """Their tools as they are known now, those too of a server that has gone."""
        return {name: tool for one in self._connections.values() for name, tool in one.tools.items()}

    def know(self, tool: str) -> bool:
        """Whether this may be the name of a server's tool, or means all of one's. Which there are shows when it is there."""
        return server_of(tool) in self._connections and len(tool) > len(server_of(tool)) + 1

    def all_of_each(self) -> tuple[str, ...]:
        """What names every tool of every server."""
        return tuple(one.server.full(ALL) for one in self._connections.values())

    def called(self, names: Iterable[str]) -> list[str]:
        """Which servers these names of tools are of."""
        return [name for name in self._connections if any(server_of(tool) == name for tool in names if self.know(tool))]

    async def settled(self, names: Iterable[str]) -> None:
        """Returns once each server that is named has been tried, or after some seconds."""
        await asyncio.gather(*(self._connections[name].settled() for name in self.called(names)))

    def absent(self, names: Iterable[str]) -> list[str]:
        """Those of them of which no tool is known."""
        return [name for name in self.called(names) if not self._connections[name].tools]

    def start(self) -> None:
        """Begin to connect, to all side by side; returns at once."""
        for connection in self._connections.values():
            connection.start()

    async def stop(self) -> None:
        """End all of them."""
        await asyncio.gather(*(connection.stop() for connection in self._connections.values()))


def _connections(servers: Mapping[str, McpServer], taken: Collection[str]) -> "dict[str, Connection]":
    try:
        from agent.mcp_connection import Connection
    except ImportError as error:
        raise ServersNotReady(f"mcp.{next(iter(servers))}: {INSTALL}") from error
    return {name: Connection(server, taken) for name, server in servers.items()}
