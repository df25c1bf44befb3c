"""External: before a call brings something from outside of this installation, it is noted that what its turn answers is made of that."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import FunctionToolset, ToolsetTool, WrapperToolset


@dataclass
class Tools(WrapperToolset[Any]):
    """The tools of one turn; `note` is awaited before each call of those that are `external`."""

    wrapped: FunctionToolset[Any]  # type: ignore[assignment]
    external: frozenset[str]
    note: Callable[[], Awaitable[Any]]

    @property
    def tools(self) -> dict[str, Tool[Any]]:
        """All of them, by name."""
        return self.wrapped.tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        if name in self.external:
            await self.note()
        return await self.wrapped.call_tool(name, tool_args, ctx, tool)
