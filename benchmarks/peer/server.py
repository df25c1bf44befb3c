"""The peer: an A2A server made of the official SDK's own parts, whose agent answers with the text it was sent.

It runs in a venv of its own (`requirements.txt` beside this file) and imports nothing of Outrider's. It has what
Outrider has: uvicorn on one event loop, httptools, the same SQLite settings; and it does less: no worker, no queue.
"""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from a2a.helpers.proto_helpers import get_message_text, new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import DatabaseTaskStore, InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from starlette.applications import Starlette


class Echo(AgentExecutor):
    """One task a message: an artifact with the message's text, and the end."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.add_artifact([new_text_part(get_message_text(context.message))])
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id and context.context_id
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def engine(path: Path) -> AsyncEngine:
    """SQLite as durable as Outrider's: a write-ahead log that is on the disk before an answer goes out."""
    made = create_async_engine(f"sqlite+aiosqlite:///{path}")

    @event.listens_for(made.sync_engine, "connect")
    def pragmas(connection, _record) -> None:  # type: ignore[no-untyped-def]
        for pragma in ("busy_timeout=30000", "journal_mode=wal", "synchronous=full"):
            connection.execute(f"pragma {pragma}")

    return made


def app(database: Path | None, url: str) -> Starlette:
    """The server; without a database it keeps its tasks in memory."""
    card = AgentCard(
        name="peer",
        description="Answers with the text it was sent.",
        version="1",
        supported_interfaces=[AgentInterface(url=f"{url}/a2a", protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="echo", name="echo", description="Echoes", tags=["echo"])],
    )
    store = DatabaseTaskStore(engine(database)) if database else InMemoryTaskStore()
    handler = DefaultRequestHandler(Echo(), store, card)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if isinstance(store, DatabaseTaskStore):
            await store.initialize()  # left to the first requests, two of them would create the table
        yield
        await handler.aclose()

    routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/a2a")]
    return Starlette(routes=routes, lifespan=lifespan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--database", type=Path)
    options = parser.parse_args()
    served = app(options.database, f"http://127.0.0.1:{options.port}")
    uvicorn.run(served, host="127.0.0.1", port=options.port, http="httptools", loop="asyncio", log_level="warning")


if __name__ == "__main__":
    main()
