"""ListTasks among 100,000 tasks of 2,000 sessions: the first page of 50 and the 500th, beside the SDK's DatabaseTaskStore.

Both servers have the same tasks, and are asked over JSON-RPC in the same words in turn, so that a slow minute of the
machine meets both. The peer's token of a far page can be made; Outrider's is sealed, so its pages are walked through.
"""

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from background.database import Database
from benchmarks.bench import PEER_PYTHON, Bench, resident_mb
from benchmarks.figures import Figure, Peer
from benchmarks.filling import PER_SESSION, TEXT, fill
from tests.support.server import ROOT

TASKS, PAGE, FAR = 100_000, 50, 500
ASKED = 15
STORE = "the SDK's DatabaseTaskStore"


def pages(bench: Bench) -> Iterator[Figure]:
    """What a page costs, near and far, and how much memory the server has used on the way there."""
    ours, theirs = bench.fresh(), bench.fresh()
    asyncio.run(_empty(ours / "outrider.db"))
    fill(ours / "outrider.db", TASKS, began=time.time_ns() // 1_000_000 * 1_000 - TASKS * 1_000)
    token = _fill_peer(theirs / "peer.db")
    with bench.outrider(data=ours) as outrider, bench.peer(durable=True, data=theirs) as peer:
        mine, other = _Lists(outrider.port), _Lists(peer.port)
        mine.page()
        before = resident_mb(outrider.pid)
        far = mine.walk(FAR)
        after = resident_mb(outrider.pid)
        first, last = _times([(mine, ""), (other, "")]), _times([(mine, far), (other, token)])
    yield Figure(f"page 1 of {TASKS:,} tasks", first[0], "ms", [Peer(STORE, first[1])], note="wanted: at least 10x")
    yield Figure(f"page {FAR}", last[0], "ms", [Peer(STORE, last[1])], note="wanted: at least 10x")
    yield Figure("  beside page 1", last[0], "ms", [Peer("page 1", first[0])], note="wanted: at least 0.67x")
    yield Figure(f"memory after {FAR} pages", after, "MB", [Peer("after 1", before)], note="wanted: at least 0.9x")


async def _empty(path: Path) -> None:
    await (await Database(path).open()).close()


def _fill_peer(path: Path) -> str:
    """The token of the peer's far page."""
    given = {"database": path, "count": TASKS, "per-context": PER_SESSION, "behind": (FAR - 1) * PAGE, "text": TEXT}
    command = [str(PEER_PYTHON), str(ROOT / "benchmarks/peer/fill.py"), *(f"--{name}={given[name]}" for name in given)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=180, check=True).stdout.strip()


class _Lists:
    """The tasks of one server, page by page; `took` is how long the last one took, in milliseconds."""

    def __init__(self, port: int) -> None:
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)
        self.took = 0.0

    def page(self, token: str = "") -> dict[str, Any]:
        """One page, after a look that it is one."""
        params = {"pageSize": PAGE} | ({"pageToken": token} if token else {})
        request = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params}
        answer = self._http.post("/a2a", json=request, headers={"A2A-Version": "1.0"})
        self.took = answer.elapsed.total_seconds() * 1000
        found = answer.json()["result"]
        assert len(found["tasks"]) == PAGE and found["totalSize"] == TASKS, answer.text[:500]
        assert all(task["history"] for task in found["tasks"])
        return found

    def walk(self, far: int) -> str:
        """The token of a far page, by way of all pages before it."""
        token = ""
        for _ in range(far - 1):
            token = self.page(token)["nextPageToken"]
        return token


def _times(asked: list[tuple[_Lists, str]]) -> list[float]:
    """The median of how long each page took."""
    shown = [[task["id"] for task in lists.page(token)["tasks"]] for lists, token in asked]
    assert all(ids == shown[0] for ids in shown), "the servers show other tasks"
    times: list[list[float]] = [[] for _ in asked]
    for _ in range(ASKED):
        for (lists, token), taken in zip(asked, times, strict=True):
            lists.page(token)
            taken.append(lists.took)
    return [median(taken) for taken in times]
