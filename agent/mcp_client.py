"""One connection to an MCP server, by the agent library's client: opened, listed, asked, closed.

The only module that knows that client, and loaded only where a server is set. A connection lives in a task of its own.
It tries nothing again and knows no turn; see `mcp_connection.py`.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import McpError, ToolError
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import BinaryContent
from pydantic_core import to_json

from agent.mcp_servers import Found, McpServer

log = logging.getLogger(__name__)

CONNECT_S = 30.0  # the first start of a server that is downloaded takes long
LIST_S = 10.0
LINE = 1000  # bytes of a line of its standard error
CONNECTION_CLOSED = -32000
# Its library would write to standard error past our log.
for _handler in tuple(logging.getLogger("fastmcp").handlers):
    logging.getLogger("fastmcp").removeHandler(_handler)
logging.getLogger("fastmcp").propagate = True


class Refused(Exception):
    """The server answered that the call failed; `str()` is what it said."""


class Lost(Exception):
    """The server is not there, or not any more; `str()` says what of it is known, in our words."""


class Live:
    """One connection, from opening to closing. `say` is given its standard error's lines, `changed` is called where
    somebody should look after it. `tools` are what it offered when it was last asked.
    """

    def __init__(self, server: McpServer, say: Callable[[str], None], changed: Callable[[], None]) -> None:
        self.server = server
        self.tools: tuple[Found, ...] = ()
        self._say, self._changed = say, changed
        self.opening = True
        self._status = 200  # of the last answer over HTTP: the client's own errors do not say it
        self._calls = 0
        self._over, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._toolset: MCPToolset[Any]

    @property
    def over(self) -> bool:
        """Whether it takes no more calls."""
        return self._over.is_set()

    @property
    def busy(self) -> bool:
        """Whether a call is out."""
        return self._calls > 0

    async def run(self, opened: asyncio.Future[None]) -> None:
        """Open, and tell `opened` or why not (`Lost`); close when it is over and its last call has ended."""
        try:
            async with AsyncExitStack() as stack:
                self._toolset = await stack.enter_async_context(await self._client(stack))
                await self.look()
                self.opening = False
                _tell(opened, None)
                await self._over.wait()
                await self._idle.wait()
        except Lost as lost:
            _tell(opened, lost)
        except Exception as error:  # noqa: BLE001 - of a foreign server and its client; it takes nothing down
            if opened.done():
                log.info("the MCP server %s did not end well: %s", self.server.name, type(error).__name__)
            _tell(opened, Lost(self._why(error)))
        finally:
            _tell(opened, Lost("it was ended"))

    def end(self, *, at_once: bool = False) -> None:
        """It takes no more calls, and is closed when those that are out have ended, or `at_once`."""
        self._over.set()
        if at_once:
            self._idle.set()
        self._changed()

    async def look(self) -> None:
        """Ask what it offers. Raises `Lost`."""
        try:
            async with asyncio.timeout(LIST_S):
                listed = await self._toolset.list_tools()
        except TimeoutError:
            raise Lost(f"it gave no list of its tools within {LIST_S:g} s") from None
        except Exception as error:
            raise Lost(self._why(error)) from error
        self.tools = tuple(Found(tool.name, tool.description or "", dict(tool.input_schema)) for tool in listed)

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """What a tool answers, as text. Raises `Refused`, `Lost`, `TimeoutError`.

        A call that is cut off, by its time or by its turn's end, ends the process it went to: the server is told, but
        nobody can see whether it stops.
        """
        self._calls += 1
        self._idle.clear()
        try:
            async with asyncio.timeout(self.server.timeout_s):
                return in_words(await self._toolset.direct_call_tool(tool, arguments))
        except (TimeoutError, asyncio.CancelledError):
            if self.server.command:
                self.end()
            raise
        except ToolError as error:
            raise Refused(str(error)) from None
        except McpError as error:
            if error.error.code == CONNECTION_CLOSED or self._status >= 300:
                raise Lost(self._why(error)) from None
            raise Refused(error.error.message) from None
        except Exception as error:
            raise Lost(self._why(error)) from error
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def _see(self, response: httpx2.Response) -> None:
        if response.request.method == "POST":
            self._status = response.status_code

    def _why(self, error: BaseException) -> str:
        return f"it answers HTTP {self._status}" if self._status >= 300 else _why(error)

    async def _client(self, stack: AsyncExitStack) -> MCPToolset[Any]:
        server = self.server
        given: Any
        http = None
        if server.command:
            given = StdioTransport(
                server.command,
                list(server.args),
                env=dict(server.env),
                cwd=server.cwd,
                keep_alive=False,
                log_file=await stack.enter_async_context(_ear(self._say, self._changed)),
            )
        else:
            # Its own client: headers hold secrets, and are not to go along to wherever a redirect leads.
            http = httpx2.AsyncClient(
                headers=dict(server.headers),
                follow_redirects=False,
                timeout=httpx2.Timeout(CONNECT_S, read=max(300.0, server.timeout_s)),
                event_hooks={"response": [self._see]},
            )
            await stack.enter_async_context(http)
            given = server.url
        return MCPToolset(
            given,
            id=server.name,
            tool_error_behavior="error",
            cache_tools=False,
            init_timeout=CONNECT_S,
            read_timeout=None,
            http_client=http,
        )


def _tell(opened: asyncio.Future[None], lost: Lost | None) -> None:
    if opened.done():
        return
    if lost is None:
        opened.set_result(None)
    else:
        opened.set_exception(lost)


def _why(error: BaseException) -> str:
    """In our words: an exception's own text may hold an address with a secret in it."""
    while isinstance(error, BaseExceptionGroup) or (type(error) is RuntimeError and error.__cause__):
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error
    match error:
        case FileNotFoundError():
            return "there is no such command, or no such folder"
        case PermissionError():
            return "it may not be started"
        case McpError():
            return "its connection ended" if error.error.code == CONNECTION_CLOSED else f"error {error.error.code}"
        case TimeoutError():
            return f"it did not answer within {CONNECT_S:g} s"
    return f"it cannot be reached ({type(error).__name__})"


def in_words(result: Any) -> str:
    """A tool's result as text: what is no text is named, and not shown."""
    match result:
        case str():
            return result
        case BinaryContent():
            return f"({result.media_type}, {len(result.data):,} bytes, which cannot be shown here)"
        case list():
            shown = [in_words(one) for one in result]
            return "\n\n".join(shown) if any(isinstance(one, BinaryContent) for one in result) else _json(result)
    return _json(result)


def _json(value: Any) -> str:
    return to_json(value, indent=1, fallback=str, bytes_mode="base64").decode()


@asynccontextmanager
async def _ear(say: Callable[[str], None], ended: Callable[[], None]) -> AsyncIterator[Any]:
    """A file for a child's standard error, which is heard line by line. The child's own end shows as the file's."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as given:
        pipe = os.fdopen(reading, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: _Lines(say, ended), pipe)
        try:
            yield given
        finally:
            transport.close()


class _Lines(asyncio.Protocol):
    """Bytes to lines; what is too long for one is several."""

    def __init__(self, say: Callable[[str], None], ended: Callable[[], None]) -> None:
        self._say, self._ended = say, ended
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > LINE:
            lines.append(self._rest[:LINE])
            self._rest = self._rest[LINE:]
        for line in lines:
            self._tell(line)

    def eof_received(self) -> None:
        self._tell(self._rest)
        self._ended()

    def _tell(self, line: bytes) -> None:
        if line.strip():
            self._say(line[:LINE].decode(errors="replace").rstrip())
