"""F146: who asks from another thread is answered on Outrider's own event loop, and told when that is gone."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent import sdk
from agent.running import Running
from agent.subagents import Registry
from background.database import Database
from background.errors import Fault
from web.app import build
from web.settings import load


class Endless:
    """A store whose search takes for ever; it says when one has begun, and on which thread."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.thread: int | None = None

    async def search(self, *_: Any, **__: Any) -> list[Any]:
        self.thread = threading.get_ident()
        self.begun.set()
        await asyncio.Event().wait()
        return []


async def from_a_thread(call: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(lambda: asyncio.run(call()))


def test_f146_a_program_s_thread_has_the_whole_sdk(run: Callable[..., Any], tmp_path: Path) -> None:
    async def story() -> None:
        async with build(load({"data": str(tmp_path / "data")}, {})).running():
            assert await from_a_thread(lambda: sdk.open_session("s1")) == "s1"
            job_id = await from_a_thread(lambda: sdk.spawn_background(session="s1", prompt="x" * 90 + "\nmore"))
            status = await from_a_thread(lambda: sdk.background_status(job_id))
            assert status.description == "x" * 79 + "…" and status.plugin is None
            assert await from_a_thread(lambda: sdk.background_status("bg-000000000000")) is None
            assert await from_a_thread(lambda: sdk.search_knowledge("zyzzyva")) == []
            with pytest.raises(Fault, match="There is no such session"):
                await from_a_thread(lambda: sdk.spawn_background(session="s2", prompt="x"))
        with pytest.raises(Fault, match="No Outrider runs in this process"):
            await from_a_thread(lambda: sdk.open_session("s1"))

    run(story())


def test_f146_who_waits_in_a_thread_when_outrider_stops_is_told(run: Callable[..., Any], tmp_path: Path) -> None:
    async def story() -> None:
        store: Any = Endless()
        running = Running(Database(tmp_path / "never-opened.db"), store, Registry())
        waits = asyncio.create_task(from_a_thread(lambda: running.search("q", "local", 5)))
        await asyncio.to_thread(store.begun.wait, 10)
        assert store.thread == threading.get_ident()
        running.leave()
        for call in (waits, from_a_thread(lambda: running.search("q", "local", 5))):
            with pytest.raises(Fault, match="Outrider has stopped in this process"):
                await asyncio.wait_for(call, 10)

    run(story())
