"""The knowledge store: indexing a report, and searching among many."""

import asyncio
import random
import time
from collections.abc import Iterator
from statistics import median, quantiles

from benchmarks.bench import Bench
from benchmarks.figures import Figure
from knowledge import trust
from knowledge.backend import Document
from knowledge.store import Store

REPORTS = 20_000
CHARS = 15_000
SEARCHES = 300
VOCABULARY = 20_000


def index_and_search(bench: Bench) -> Iterator[Figure]:
    """Reports of 15,000 characters of made-up words, common and rare as words are; two rare words a search."""
    indexing, searching = asyncio.run(_measure(bench))
    yield Figure("index a report of 15,000 characters", median(indexing), "ms", note="wanted: under 10 ms")
    note = f"among {REPORTS:,} reports; wanted: under 15 ms"
    yield Figure("search, half within", median(searching), "ms", note=note)
    yield Figure("  99 of 100 within", quantiles(searching, n=100)[98], "ms")


async def _measure(bench: Bench) -> tuple[list[float], list[float]]:
    dice = random.Random(1)
    words = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(3, 9))) for _ in range(VOCABULARY)]
    weights = [1 / (rank + 2) for rank in range(VOCABULARY)]
    store = await Store.open(bench.fresh() / "knowledge.db")
    indexing = []
    for number in range(REPORTS):
        document = _report(number, " ".join(dice.choices(words, weights, k=CHARS // 6))[:CHARS])
        start = time.perf_counter()
        await store.put(document)
        indexing.append((time.perf_counter() - start) * 1000)
    searching = []
    for _ in range(SEARCHES):
        query = " ".join(dice.sample(words[VOCABULARY // 4 :], 2))  # each in less than 1 % of the chunks
        start = time.perf_counter()
        await store.search(query, "local", limit=5)
        searching.append((time.perf_counter() - start) * 1000)
    await store.close()
    return indexing, searching


def _report(number: int, text: str) -> Document:
    return Document(
        key=f"report:{number}",
        owner="local",
        source=f"s{number % 200}",
        source_type="background_report",
        heading=f"Report {number}",
        text=text,
        trust=trust.AGENT,
        created_at=number,
        job_id=f"bg-{number:012x}",
    )
