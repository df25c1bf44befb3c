"""Large values: the event loop does none of the work on them, and of what is large one thing is worked on at a time."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from background.large import ITEMS, LARGE, is_large, one_by_one
from web.app import build
from web.settings import load

RPC = {"A2A-Version": "1.0"}


@pytest.mark.parametrize(
    ("value", "large"),
    [
        ("x" * LARGE, False),
        ("x" * (LARGE + 1), True),
        ({"a": ["x" * LARGE, "x"]}, True),
        ([1] * ITEMS, False),
        ([1] * (ITEMS + 1), True),
        ([[1]] * (ITEMS - 1), True),
        ({"a": {"b": [None, True, 1.5, "text"]}}, False),
        (None, False),
    ],
)
def test_a_value_is_large_by_its_text_or_by_its_number_of_items(value: Any, large: bool) -> None:
    assert is_large(value) is large


def test_what_is_large_is_done_one_after_the_other_and_a_failure_stops_nothing(run: Callable[..., Any]) -> None:
    at_work = threading.Lock()
    done: list[int] = []

    def work(number: int) -> int:
        assert at_work.acquire(blocking=False), "two at once"
        done.append(number)
        at_work.release()
        if number == 3:
            raise ValueError(number)
        return number

    async def story() -> list[Any]:
        return await asyncio.gather(*(one_by_one(work, number) for number in range(20)), return_exceptions=True)

    results = run(story())
    assert done == list(range(20))
    assert isinstance(results.pop(3), ValueError) and results == [number for number in range(20) if number != 3]


def test_A85_much_structured_data_is_hardly_any_work_for_the_event_loop(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    """In processor time of its own thread, so a busy machine changes nothing: sent, answered, read, listed, streamed."""
    data = [[number] for number in range(120_000)]
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": data}], "metadata": {"skill": "echo"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}).encode()
    streamed = body.replace(b"SendMessage", b"SendStreamingMessage").replace(b'"m"', b'"n"')

    async def cost(client: httpx.AsyncClient, method: str, address: str, sent: bytes | None = None) -> float:
        began = time.thread_time()
        answer = await client.request(method, address, content=sent, headers=RPC)
        took = time.thread_time() - began
        assert answer.status_code == 200 and len(answer.content) > 500_000, answer.text[:500]
        return took

    async def story() -> dict[str, float]:
        async with build(load({"data": tmp_path, "profiles": "chat,echo"})).running() as outrider:
            there = httpx.ASGITransport(app=outrider.app)
            async with httpx.AsyncClient(transport=there, base_url="http://127.0.0.1:8420", timeout=60) as client:
                sent = await cost(client, "POST", "/a2a", body)
                listed = (await client.get("/a2a/rest/tasks", headers=RPC)).json()
                return {
                    "send": sent,
                    "get": await cost(client, "GET", f"/a2a/rest/tasks/{listed['tasks'][0]['id']}"),
                    "list": await cost(client, "GET", "/a2a/rest/tasks?includeArtifacts=true"),
                    "stream": await cost(client, "POST", "/a2a", streamed),
                }

    began = time.thread_time()
    json.dumps(data)
    once = time.thread_time() - began
    costs = run(story())
    told = f"{costs}, and {once} for writing it once"
    assert max(costs["get"], costs["list"]) < once, told
    assert max(costs["send"], costs["stream"]) < 4 * once, told  # what was parsed is let go of somewhere
