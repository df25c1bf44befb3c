"""Whether the registry's everyday steps cost more when much is stored: 300,000 tasks and jobs against 1,000.

The rows are made by `filling.py`; what is measured are the product's own functions.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from statistics import median

from agent import taking_up
from agent.taking_up import Shape
from background import acceptance, delivery, job_rows, journal, queue, sessions, terminal
from background.acceptance import Incoming
from background.database import Database, Tx
from background.terminal import Outcome
from benchmarks.bench import Bench
from benchmarks.figures import Figure, Peer
from benchmarks.filling import fill

SMALL, LARGE = 1_000, 300_000
ROUNDS = 200
WAITING = 10_000


def much_stored(bench: Bench) -> Iterator[Figure]:
    """Each step's median beside the same step with little stored; a ratio of 0.67x is one and a half times the time."""
    small, large = (asyncio.run(_measure(bench, count)) for count in (SMALL, LARGE))
    for step, value in large.items():
        yield Figure(step, value, "ms", [Peer(f"with {SMALL:,} stored", small[step])], note="wanted: at least 0.67x")


def crowded_lane(bench: Bench) -> Iterator[Figure]:
    """A claim while 10,000 messages wait behind one busy session, beside a claim with nothing waiting."""
    alone, crowded = (asyncio.run(_claim_time(bench, waiting)) for waiting in (0, WAITING))
    yield Figure(
        f"claim, {WAITING:,} waiting in a lane",
        crowded,
        "ms",
        [Peer("with none", alone)],
        note="wanted: at least 0.67x",
    )


async def _measure(bench: Bench, count: int) -> dict[str, float]:
    path = bench.fresh() / "outrider.db"
    await (await Database(path).open()).close()
    fill(path, count)
    db = await Database(path).open()
    await db.write(_live)

    async def step(function: Callable[[int], Awaitable[object]]) -> float:
        times = []
        for number in range(ROUNDS):
            start = time.perf_counter()
            await function(number)
            times.append((time.perf_counter() - start) * 1000)
        return median(times)

    try:
        return {
            "accept a message": await step(lambda n: db.write(acceptance.accept, _message(n, f"new{n}"))),
            "begin and end a turn": await step(lambda n: db.write(_answer, f"turn{n}")),
            "claim a run": await step(lambda n: db.write(queue.claim, "bench", "turn", 1)),
            "read a task": await step(lambda n: db.read(journal.view, "local", f"t{n}")),
            "list a page of jobs": await step(lambda n: db.read(job_rows.page, "local", limit=50)),
            "list a session's jobs": await step(
                lambda n: db.read(job_rows.page, "local", limit=50, session=f"s{n % 20}")
            ),
            "look for what a turn may tell": await step(lambda n: db.read(_drain, f"u{n % 20}")),
        }
    finally:
        await db.close()


async def _claim_time(bench: Bench, waiting: int) -> float:
    db = await Database(bench.fresh() / "outrider.db").open()
    await db.write(_live)
    await db.write(acceptance.accept, _message(0, "busy"))
    await db.write(queue.claim, "bench", "turn", 1)
    await asyncio.gather(*(db.write(_wait_in_lane, number) for number in range(waiting)))
    times = []
    for number in range(ROUNDS):
        await db.write(acceptance.accept, _message(100_000 + number, f"other{number}"))
        start = time.perf_counter()
        claimed = await db.write(queue.claim, "bench", "turn", 1)
        times.append((time.perf_counter() - start) * 1000)
        assert len(claimed) == 1
    await db.close()
    return median(times)


def _wait_in_lane(tx: Tx, number: int) -> None:
    session = sessions.get(tx, "local", "busy")
    queue.enqueue(tx, "turn", f"wait:{number}", lane=f"session:{session.uid}")


def _answer(tx: Tx, session: str) -> None:
    """All that a turn writes: accepted, claimed, begun, settled, projected."""
    acceptance.accept(tx, _message(0, session, id=f"asked-{session}"))
    (run,) = queue.claim(tx, "bench", "turn", 1)
    taking_up.begin(tx, run, Shape(), 50)
    terminal.settle(tx, run, Outcome("completed", [{"artifactId": "answer", "parts": [{"text": "hello"}]}]))
    journal.project(tx)


def _drain(tx: Tx, uid: str) -> object:
    return delivery.waiting(tx, uid, fired_only=False)


def _live(tx: Tx) -> None:
    tx.x("insert into workers values ('bench', 'here', 1, :now, :now, :now)", now=tx.now)


def _message(number: int, session: str, id: str = "") -> Incoming:
    content = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    return Incoming("local", session, id or f"new-{number}", f"f{number}", "hello", content)
