"""Fills a database of the peer's with ended tasks, as its own store writes them, and prints the token of a later page.

It runs in the peer's venv, like the server, and imports nothing of Outrider's.
"""

import argparse
import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from a2a.server.context import ServerCallContext
from a2a.server.tasks import DatabaseTaskStore
from a2a.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus
from a2a.utils.task import ListTasksCursor, encode_list_tasks_cursor
from server import engine

AT_ONCE = 5_000
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


async def fill(database: Path, count: int, per_context: int, text: str) -> None:
    """`count` completed tasks, a millisecond apart, each with its message and its answer."""
    made = engine(database)
    store = DatabaseTaskStore(made)
    await store.initialize()
    owner = store.owner_resolver(ServerCallContext())
    for start in range(0, count, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, count))
        async with store.async_session_maker.begin() as session:
            session.add_all([store._to_orm(_task(n, per_context, text), owner) for n in numbers])
    await made.dispose()


def _task(n: int, per_context: int, text: str) -> Task:
    place = {"task_id": f"t{n}", "context_id": f"s{n // per_context}"}
    said = Message(message_id=f"m{n}", role=Role.ROLE_USER, parts=[Part(text=text)], **place)
    status = TaskStatus(state=TaskState.TASK_STATE_COMPLETED)
    status.timestamp.FromDatetime(_time(n))
    answer = Artifact(artifact_id=f"t{n}-1", parts=[Part(text=text)])
    return Task(id=place["task_id"], context_id=place["context_id"], status=status, artifacts=[answer], history=[said])


def _time(n: int) -> datetime:
    return BEGAN + timedelta(milliseconds=n)


def token(count: int, behind: int) -> str:
    """The token of the page that follows the newest `behind` tasks."""
    last = count - behind
    since = (_time(last) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return encode_list_tasks_cursor(ListTasksCursor(timestamp_ns=since * 1000, task_id=f"t{last}"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", type=Path, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--per-context", type=int, required=True)
    parser.add_argument("--behind", type=int, required=True)
    parser.add_argument("--text", required=True)
    options = parser.parse_args()
    asyncio.run(fill(options.database, options.count, options.per_context, options.text))
    print(token(options.count, options.behind))


if __name__ == "__main__":
    main()
