"""What a program gets that runs Outrider in its own process: a session to send jobs out for, and plain refusals."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agent import sdk
from background.errors import Fault
from web.app import build
from web.settings import load


def inside(data: Path, story: Callable[[], Awaitable[None]]) -> None:
    """Lets the story happen in a process that runs Outrider."""

    async def run() -> None:
        async with build(load({"data": str(data)}, {})).running():
            await story()

    asyncio.run(run())


def test_a_session_is_made_once_and_a_job_is_sent_out_for_no_other(tmp_path: Path) -> None:
    async def story() -> None:
        assert await sdk.open_session("s1") == await sdk.open_session("s1") == "s1"
        assert await sdk.open_session() != await sdk.open_session()
        assert await sdk.spawn_background(session="s1", prompt="What is a hot journal?")
        with pytest.raises(Fault, match="There is no such session"):
            await sdk.spawn_background(session="s2", prompt="What is a hot journal?")

    inside(tmp_path / "data", story)


def test_an_id_that_no_client_could_use_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        for bad in ("", "a b", "a/b", "x" * 129, "background:bg-0123456789ab", "Background:x"):
            with pytest.raises(Fault, match="A session's id is 1 to 128"):
                await sdk.open_session(bad)

    inside(tmp_path / "data", story)


def test_without_an_outrider_in_the_process_it_says_where_to_ask() -> None:
    with pytest.raises(Fault, match="No Outrider runs in this process"):
        asyncio.run(sdk.open_session("s1"))
