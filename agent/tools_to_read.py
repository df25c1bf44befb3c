"""The tools that read: the knowledge store, other sessions, the web."""

from typing import Any

from pydantic_ai import RunContext

from agent import material, memory_tool
from agent.arguments import number_of
from agent.desk import Desk, Function
from agent.tool_schemas import ONLY, RECALL_LIMIT
from background import tasks
from background.memory_uses import Use
from knowledge.backend import BadQuery, SearchTimeout, StoreFailed


def memory_recall_at(desk: Desk) -> Function:
    async def memory_recall(ctx: RunContext[Any], **asked: Any) -> str:
        query = str(asked.get("query", ""))
        limit = number_of(asked.get("limit"), 5, 1, RECALL_LIMIT)
        if (only := asked.get("only")) not in (None, *ONLY):
            return f"`only` is one of {', '.join(ONLY)}, or left out."
        try:
            hits = await desk.knowledge.search(query, desk.task.owner, limit=limit, source_type=ONLY.get(only or ""))
        except BadQuery as error:
            return f"The query cannot be searched: {error}"
        except (SearchTimeout, StoreFailed) as error:
            return f"The knowledge store could not be searched ({type(error).__name__}); this does not mean that it has nothing."
        if tier := material.tier_of_hits(hits):
            await desk.db.write(tasks.has_read, desk.task.id, tier)
        desk.used(ctx, [Use("passage", hit.id, hit.tier, len(hit.snippet), hit.offset) for hit in hits])
        return material.recalled(query, hits)

    return memory_recall


def recall_session_at(desk: Desk) -> Function:
    async def recall_session(ctx: RunContext[Any], **asked: Any) -> str:
        text, uses = await desk.db.read(memory_tool.recalled, desk.task.owner, desk.session.uid, asked)
        if uses:
            await desk.db.write(tasks.has_read, desk.task.id, min(use.tier for use in uses))
        desk.used(ctx, uses)
        return text

    return recall_session


def fetch_page_at(desk: Desk) -> Function:
    async def fetch_page(ctx: RunContext[Any], **asked: Any) -> str:
        return await desk.pages.told(desk.task.id, asked) if desk.pages else "No pages can be read here."

    return fetch_page
