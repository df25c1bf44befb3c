"""What a server costs before it does anything: the time until it is ready, and its memory."""

import time
from collections.abc import Iterator
from statistics import median

from benchmarks.bench import Bench, resident_mb
from benchmarks.figures import Figure


def idle_server(bench: Bench) -> Iterator[Figure]:
    """Started on an empty folder, with the project's docs taken in; resident memory five seconds later."""
    ready, memory = [], []
    for _ in range(bench.rounds):
        start = time.perf_counter()
        with bench.outrider() as server:
            ready.append(time.perf_counter() - start)
            time.sleep(5)
            memory.append(resident_mb(server.pid))
    yield Figure("start to ready", median(ready), "s", note="wanted: under 3 s")
    yield Figure("memory of an idle server", median(memory), "MB", note="wanted: under 150 MB")
