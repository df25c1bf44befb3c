"""Loads an A2A server on loopback with blocking messages and times the answers, each of which it checks.

Bounded in count and time. It runs as a process of its own and speaks HTTP by hand over keep-alive connections, so
that what it measures is the server: it does not know which server that is.
"""

import argparse
import asyncio
import json
import statistics
import time
import uuid
from dataclasses import asdict, dataclass
from typing import Any

HEAD = (
    "POST /a2a HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nA2A-Version: 1.0\r\n"
    "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n"
)


@dataclass(frozen=True)
class Load:
    """What came of it. Times of one answer in milliseconds."""

    answers: int
    seconds: float
    per_second: float
    p50_ms: float
    p99_ms: float


class Budget:
    """How many messages may still be sent, and until when."""

    def __init__(self, count: int, seconds: float) -> None:
        self._left = count
        self._end = time.monotonic() + seconds

    def take(self) -> bool:
        self._left -= 1
        return self._left >= 0 and time.monotonic() < self._end


def envelope(text: str) -> dict[str, Any]:
    """One blocking message in a new conversation, for a server's `echo` skill."""
    message = {
        "messageId": str(uuid.uuid4()),
        "role": "ROLE_USER",
        "parts": [{"text": text}],
        "metadata": {"skill": "echo"},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, body: bytes) -> bytes:
    """One request and its answer's body, on a connection that stays open."""
    writer.write(HEAD.format(port, len(body)).encode() + body)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = next(line for line in head.split("\r\n") if line.startswith("content-length:"))
    return await reader.readexactly(int(length.partition(":")[2]))


def check(answer: bytes, text: str) -> None:
    """Only a completed task with the text that was sent counts; anything else ends the load."""
    task = json.loads(answer).get("result", {}).get("task", {})
    state = task.get("status", {}).get("state")
    parts = [part.get("text") for artifact in task.get("artifacts", ()) for part in artifact["parts"]]
    if state != "TASK_STATE_COMPLETED" or parts != [text]:
        raise SystemExit(f"not the echo of {text!r}: {answer[:2000].decode(errors='replace')}")


async def connection(port: int, name: int, budget: Budget) -> list[float]:
    """Sends one message after the other while the budget lasts. Returns each answer's time, in seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    times = []
    while budget.take():
        text = f"message {len(times)} of connection {name}"
        body = json.dumps(envelope(text)).encode()
        start = time.perf_counter()
        answer = await asyncio.wait_for(exchange(reader, writer, port, body), 30)
        times.append(time.perf_counter() - start)
        check(answer, text)
    writer.close()
    await writer.wait_closed()
    return times


async def load(port: int, connections: int, count: int, seconds: float) -> Load:
    budget = Budget(count, seconds)
    start = time.perf_counter()
    per_connection = await asyncio.gather(*(connection(port, name, budget) for name in range(connections)))
    took = time.perf_counter() - start
    times = [one for times in per_connection for one in times]
    cuts = statistics.quantiles(times, n=100)
    return Load(len(times), took, len(times) / took, cuts[49] * 1000, cuts[98] * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int, help="of a server on 127.0.0.1")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--count", type=int, default=20_000, help="most messages in all")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--warm-up", type=int, default=200, help="messages sent before the count and the clock start")
    options = parser.parse_args()
    asyncio.run(load(options.port, options.connections, options.warm_up, options.seconds))
    result = asyncio.run(load(options.port, options.connections, options.count, options.seconds))
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()
