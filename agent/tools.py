"""The tools of the contract, for chat turns and for workers. A worker gets those that stand in its job's row, no more.

A tool acts for its turn's owner and session, which it has from the turn and never from its arguments. What it
cannot do it says in words that a model can use.
"""

from collections.abc import Callable
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import FunctionToolset

from agent import memory_tool, web_pages
from agent.desk import Desk, Function
from agent.external import Tools
from agent.gates import ASK_USER
from agent.subagents import Registry
from agent.tool_schemas import SCHEMAS
from agent.tools_for_jobs import ask_worker_at, background_status_at, open_report_at, stop_task_at
from agent.tools_to_read import fetch_page_at, memory_recall_at, recall_session_at
from agent.tools_to_send import knowledge_ingest_at, task_at, task_batch_at
from agent.works import INGEST
from background import tasks
from knowledge import trust

TIMEOUT_S = 300.0
SENDING = ("task", "task_batch")


def toolset(desk: Desk, names: tuple[str, ...]) -> Tools:
    """The tools of these names. A name that is nobody's is left out: the fence closes on every doubt."""
    off = {web_pages.NAME: not desk.pages, INGEST: not desk.sources}
    made = [
        _tool(name, make(desk), desk.registry) for name, make in TOOLS.items() if name in names and not off.get(name)
    ]
    added = [tool for name, tool in desk.added.items() if name in names]
    return Tools(
        FunctionToolset([*made, *added], id="outrider"),
        desk.external,
        lambda: desk.db.write(tasks.has_read, desk.task.id, trust.EXTERNAL),
    )


def _tool(name: str, function: Function, registry: Registry) -> Tool[Any]:
    description, schema = SCHEMAS[name](registry)
    tool = Tool.from_schema(function, name, description, schema, takes_ctx=True)
    if name not in SENDING:  # a subagent in the foreground has the turn's own time
        tool.timeout = TIMEOUT_S
    return tool


def _ask_user(desk: Desk) -> Function:
    """The loop answers a call of it, out of what was stored; where no gate stands before it, nobody is asked."""

    async def ask_user(ctx: RunContext[Any], **asked: Any) -> str:
        return "Nobody was asked, and no answer will come."

    return ask_user


TOOLS: dict[str, Callable[[Desk], Function]] = {
    "task": task_at,
    "task_batch": task_batch_at,
    "background_status": background_status_at,
    "stop_task": stop_task_at,
    "ask_worker": ask_worker_at,
    "memory_recall": memory_recall_at,
    "open_report": open_report_at,
    memory_tool.NAME: recall_session_at,
    web_pages.NAME: fetch_page_at,
    INGEST: knowledge_ingest_at,
    ASK_USER: _ask_user,
}
NAMED_ONLY = (web_pages.NAME, INGEST, ASK_USER)  # only whoever names these has them
CHAT_TOOLS = tuple(name for name in TOOLS if name not in NAMED_ONLY)
