"""Whether the registry's everyday steps cost more when much is stored: 300,000 tasks and jobs against 1,000.

The rows are made by SQL in the shape that the product writes; what is measured are the product's own functions.
"""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median

from background import delivery, jobs, queue, sessions, tasks
from background.database import Database, Tx
from background.tasks import Incoming
from benchmarks.bench import Bench
from benchmarks.figures import Figure, Peer

SMALL, LARGE = 1_000, 300_000
PER_SESSION = 50
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
    _fill(path, count)
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
            "accept a message": await step(lambda n: db.write(tasks.accept, _message(n, f"new{n}"))),
            "claim a run": await step(lambda n: db.write(queue.claim, "bench", "turn", 1)),
            "list a page of jobs": await step(lambda n: db.read(jobs.page, "local", limit=50)),
            "list a session's jobs": await step(lambda n: db.read(jobs.page, "local", limit=50, session=f"s{n % 20}")),
            "look for what a turn may tell": await step(lambda n: db.read(_drain, f"u{n % 20}")),
        }
    finally:
        await db.close()


async def _claim_time(bench: Bench, waiting: int) -> float:
    db = await Database(bench.fresh() / "outrider.db").open()
    await db.write(_live)
    await db.write(tasks.accept, _message(0, "busy"))
    await db.write(queue.claim, "bench", "turn", 1)
    await asyncio.gather(*(db.write(_wait_in_lane, number) for number in range(waiting)))
    times = []
    for number in range(ROUNDS):
        await db.write(tasks.accept, _message(100_000 + number, f"other{number}"))
        start = time.perf_counter()
        claimed = await db.write(queue.claim, "bench", "turn", 1)
        times.append((time.perf_counter() - start) * 1000)
        assert len(claimed) == 1
    await db.close()
    return median(times)


def _wait_in_lane(tx: Tx, number: int) -> None:
    session = sessions.get(tx, "local", "busy")
    queue.enqueue(tx, "turn", f"wait:{number}", lane=f"session:{session.uid}")


def _drain(tx: Tx, uid: str) -> object:
    return delivery.waiting(tx, uid, fired_only=False)


def _live(tx: Tx) -> None:
    tx.x("insert into workers values ('bench', 'here', 1, :now, :now, :now)", now=tx.now)


def _message(number: int, session: str) -> Incoming:
    content = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    return Incoming("local", session, f"new-{number}", f"f{number}", "hello", content)


def _fill(path: Path, count: int) -> None:
    """`count` ended tasks and as many delivered jobs, in sessions of 50, with all the rows that belong to them."""
    db = sqlite3.connect(path)
    db.executescript("pragma synchronous=off; begin;")
    numbers = range(count)
    db.executemany(
        "insert into sessions (uid, owner, id, kind, title, created_at, updated_at) values (?, 'local', ?, 'chat', 'x', ?, ?)",
        ((f"u{n}", f"s{n}", n, n) for n in range(max(20, count // PER_SESSION))),
    )
    db.executemany(
        "insert into tasks (id, owner, session, profile, origin, state, revision, created_at, started_at, ended_at) "
        "values (?, 'local', ?, 'chat', 'user', 'completed', 3, ?, ?, ?)",
        ((f"t{n}", f"u{n // PER_SESSION}", n, n, n) for n in numbers),
    )
    db.executemany("insert into receipts values ('local', ?, 'f', ?)", ((f"m{n}", f"t{n}") for n in numbers))
    db.executemany("insert into results values (?, '[]', null, ?)", ((f"t{n}", n) for n in numbers))
    db.executemany(
        "insert into runs (kind, key, lane, task_id, state, due_at, attempt, created_at, ended_at) "
        "values ('turn', ?, ?, ?, 'done', ?, 1, ?, ?)",
        ((f"turn:t{n}", f"session:u{n // PER_SESSION}", f"t{n}", n, n, n) for n in numbers),
    )
    db.executemany(
        "insert into messages (session, task_id, role, kind, text, created_at) values (?, ?, 'user', 'user', 'hello', ?)",
        ((f"u{n // PER_SESSION}", f"t{n}", n) for n in numbers),
    )
    db.executemany(
        "insert into views values (?, 'local', ?, 3, 'completed', ?)",
        ((f"t{n}", f"u{n // PER_SESSION}", n) for n in numbers),
    )
    db.executemany(
        "insert into batches (id, owner, session, generation, closed_at, created_at) values (?, 'local', ?, 1, ?, ?)",
        ((f"t{n}", f"u{n // PER_SESSION}", n, n) for n in numbers),
    )
    db.executemany(
        "insert into jobs (id, owner, session, batch_id, key, fingerprint, subagent_type, description, prompt, tools, task_id, "
        "status, created_at, started_at, completed_at) values (?, 'local', ?, ?, ?, 'f', 'general', 'd', 'p', '[]', ?, "
        "'completed', ?, ?, ?)",
        ((f"bg-{n:012x}", f"u{n // PER_SESSION}", f"t{n}", f"k{n}", f"t{n}", n, n, n) for n in numbers),
    )
    db.executemany(
        "insert into members (batch_id, job_id, attempt, status, generation) values (?, ?, 1, 'completed', 1)",
        ((f"t{n}", f"bg-{n:012x}") for n in numbers),
    )
    db.executemany(
        "insert into deliveries (job_id, attempt, session, state, task_id, ready_at, notified_at, ended_at) "
        "values (?, 1, ?, 'delivered', ?, ?, ?, ?)",
        ((f"bg-{n:012x}", f"u{n // PER_SESSION}", f"t{n}", n, n, n) for n in numbers),
    )
    db.commit()
    db.close()
