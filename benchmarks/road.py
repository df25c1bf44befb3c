"""How long the steps of a job's road take inside one Outrider: a spawn, and from a job's end to its accepted nudge."""

import asyncio
import time
from collections.abc import Iterator
from statistics import median, quantiles

from agent import sdk
from background import sessions
from background.database import Tx
from benchmarks.bench import Bench
from benchmarks.figures import Figure
from web.app import build
from web.settings import load

SPAWNS = 300
JOBS = 150


def spawn(bench: Bench) -> Iterator[Figure]:
    """From the call of a spawn to the job's id, committed to disk."""
    times = asyncio.run(_spawn_times(bench))
    yield Figure("spawn, call to id, half within", median(times) * 1000, "ms", note="wanted: under 5 ms")
    yield Figure("  99 of 100 within", quantiles(times, n=100)[98] * 1000, "ms")


async def _spawn_times(bench: Bench) -> list[float]:
    settings = load({"data": bench.fresh(), "max_queued_jobs": SPAWNS * 2}, {})
    async with build(settings, serves=False, works=False).running() as outrider:
        await outrider.house.db.write(sessions.open_session, "local", "bench")
        times = []
        for number in range(SPAWNS):
            start = time.perf_counter()
            await sdk.spawn_background(
                session="bench", prompt=f"Look into subject {number}.", subagent_type="researcher"
            )
            times.append(time.perf_counter() - start)
    return times


def settled_to_nudge(bench: Bench) -> Iterator[Figure]:
    """From a job's end to the acceptance of the message that wakes its session, one job after the other."""
    times = asyncio.run(_nudge_times(bench))
    yield Figure("job settled to nudge accepted, half within", median(times), "ms", note="wanted: under 50 ms")
    yield Figure("  99 of 100 within", quantiles(times, n=100)[98], "ms", note="wanted: under 200 ms")


async def _nudge_times(bench: Bench) -> list[float]:
    settings = load({"data": bench.fresh(), "max_unattended_turns": 1000}, {})
    async with build(settings).running() as outrider:
        db = outrider.house.db
        await db.write(sessions.open_session, "local", "bench")
        for number in range(JOBS):
            job_id = await sdk.spawn_background(session="bench", prompt=f"What is a checkpoint? ({number})")
            with db.bell.listen("views", "events") as ear:
                while (await sdk.background_status(job_id)).job.delivery != "delivered":  # type: ignore[union-attr]
                    await ear.wait(0.5)
        return await db.read(_between)


def _between(tx: Tx) -> list[float]:
    rows = tx.q(
        "select t.created_at - j.completed_at as us from jobs j join tasks t on t.cause = j.id and t.origin = 'background-resume'"
    )
    return [row["us"] / 1000 for row in rows]
