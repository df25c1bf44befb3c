"""What large messages cost everybody else: the agent card's answers while ten of them are taken in, beside the peer's.

Bodies are made before the clock starts, and answers are read and not parsed: what is timed is the server.
"""

import asyncio
import json
import statistics
import time
import uuid
from collections.abc import Iterator
from typing import Any

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Peer
from benchmarks.load import HEAD

SENDERS = 10
ROUNDS = 5  # messages of each sender
WANTED_MS = 250
CARD = "GET /.well-known/agent-card.json HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n"
# A megabyte each: as applications send it, and as somebody would who wants to cost a server the most.
SHAPES: dict[str, Any] = {
    "records": [{"name": "x" * 200, "values": [n, n / 3, None, True]} for n in range(4_200)],
    "small lists": [[1] for _ in range(260_000)],
    "many keys": {f"k{n}": 1 for n in range(90_000)},
}


def card_beside_large_sends(bench: Bench) -> Iterator[Figure]:
    """Ten senders at once, each with a megabyte of structured data, over and over; one client asks for the card."""
    for shape, data in SHAPES.items():
        with bench.outrider() as server:
            took, waits = asyncio.run(_load(server.port, data))
        peers = []
        if shape == "records":  # the peer takes seconds for each of the others
            with bench.peer(durable=True) as peer:
                peers = [Peer("the SDK's server on SQLite", _p99(asyncio.run(_load(peer.port, data, rounds=1))[1]))]
        note = f"wanted: under {WANTED_MS} ms; {SENDERS * ROUNDS} messages in {took:.1f} s"
        yield Figure(f"the card, beside 10 sends of 1 MB: {shape}", _p99(waits), "ms, p99", peers, note=note)


def _p99(waits: list[float]) -> float:
    return statistics.quantiles(waits, n=100)[98] * 1000


async def _load(port: int, data: Any, rounds: int = ROUNDS) -> tuple[float, list[float]]:
    """How long all senders took, and how long the client waited for the card each time. Seconds."""
    bodies = [[_body(data) for _ in range(rounds)] for _ in range(SENDERS)]
    waits: list[float] = []
    start = time.perf_counter()
    asking = asyncio.create_task(_ask(port, waits))
    await asyncio.gather(*(_send(port, mine) for mine in bodies))
    took = time.perf_counter() - start
    asking.cancel()
    return took, waits


def _body(data: Any) -> bytes:
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"data": data}]}
    params = {"message": message | {"metadata": {"skill": "echo"}}, "configuration": {"historyLength": 0}}
    envelope = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    return json.dumps(envelope, separators=(",", ":")).encode()


async def _send(port: int, bodies: list[bytes]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    for body in bodies:
        writer.write(HEAD.format(port, len(body)).encode() + body)
        answer = await _answer(reader)
        if b"TASK_STATE_COMPLETED" not in answer:
            raise SystemExit(f"not completed: {answer[:500].decode(errors='replace')}")
    writer.close()


async def _ask(port: int, waits: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while True:
            start = time.perf_counter()
            writer.write(CARD.format(port).encode())
            await _answer(reader)
            waits.append(time.perf_counter() - start)
            await asyncio.sleep(0.005)
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = next(line for line in head.split("\r\n") if line.startswith("content-length:"))
    return await reader.readexactly(int(length.partition(":")[2]))
