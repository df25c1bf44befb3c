"""What the end of a turn costs, and how much of that is sealing: beside the same with cells that are not encrypted."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from statistics import median

from background import acceptance, queue, tasks, terminal
from background.acceptance import Incoming
from background.database import Database, Tx
from background.queue import Run
from background.sealing import FORM, HEAD, ID_BYTES, Vault, new_key
from background.terminal import Outcome
from benchmarks.bench import Bench
from benchmarks.figures import Figure, Peer

ROUNDS = 400
ANSWER = "An answer of two thousand characters. " * 53
TRANSCRIPT = '[{"parts": "' + "The turn as the model saw it. " * 200 + '"}]'


class Bare(Vault):
    """A vault whose cells have the form of sealed ones, and hold the text as it is. For measuring alone."""

    def seal(self, column: str, row: str, text: str) -> bytes:
        return FORM + bytes.fromhex(self.key_id) + bytes(HEAD - len(FORM) - ID_BYTES) + text.encode()

    def unseal(self, column: str, row: str, cell: bytes) -> str:
        return cell[HEAD:].decode()


def settled_turns(bench: Bench) -> Iterator[Figure]:
    """From a finished answer to its commit: task, result, log, transcript, event. Both take turns, so that all is alike."""
    sealed, bare = asyncio.run(_settle_times(bench))
    yield Figure("settle a turn, sealed", sealed, "ms", [Peer("not sealed", bare)])


async def _settle_times(bench: Bench) -> tuple[float, float]:
    async with AsyncExitStack() as stack:
        opened = []
        for vault in (Vault([new_key()]), Bare([new_key()])):
            db = await Database(bench.fresh() / "outrider.db", vault=vault).open()
            stack.push_async_callback(db.close)
            await db.write(_live)
            opened.append(db)
        times: list[list[float]] = [[], []]
        for number in range(ROUNDS):
            for db, taken in zip(opened, times, strict=True):
                taken.append(await _settle(db, number))
        sealed, bare = times
        return median(sealed), median(bare)


async def _settle(db: Database, number: int) -> float:
    """Milliseconds."""
    run = await db.write(_begun, number)
    artifact = {"artifactId": f"a{number}", "parts": [{"text": ANSWER}]}
    outcome = Outcome("completed", [artifact], excerpt=ANSWER[:200], transcript=TRANSCRIPT)
    start = time.perf_counter()
    await db.write(terminal.settle, run, outcome)
    return (time.perf_counter() - start) * 1000


def _live(tx: Tx) -> None:
    tx.x("insert into workers values ('bench', 'here', 1, :now, :now, :now)", now=tx.now)


def _begun(tx: Tx, number: int) -> Run:
    content = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    acceptance.accept(tx, Incoming("local", f"s{number}", f"m{number}", "f", "hello", content))
    (run,) = queue.claim(tx, "bench", "turn", 1)
    tasks.begin(tx, run)
    return run
