"""What those cost who wait: open streams, blocking sends, and pieces of an answer, however many there are."""

import asyncio
import json
import re
import resource
import time
import uuid
from collections.abc import Iterator
from datetime import datetime
from statistics import median

from background import acceptance, journal, queue, sessions, tasks
from background.acceptance import Incoming
from background.database import Database, Tx
from background.queue import Run
from benchmarks.bench import Bench, resident_mb
from benchmarks.figures import Figure, Peer
from tests.support.server import Server
from tests.support.trial import Trial

STREAMS = 1_000
SENDS = 512
PIECES = 5_000
COMPARED = 500
ROOM = {
    "OUTRIDER_MODEL": "offline",
    "OUTRIDER_MAX_STREAMS": "2000",
    "OUTRIDER_MAX_STREAMS_PER_USER": "2000",
    "OUTRIDER_MAX_STREAMS_PER_TASK": "2000",
    "OUTRIDER_MAX_WAITING_REQUESTS": "2000",
    "OUTRIDER_MAX_OPEN_TASKS_PER_USER": "2000",
    "OUTRIDER_BLOCKING_WAIT_S": "100",
    "OUTRIDER_STREAM_MAX_S": "300",
}
PATIENCE_S = 90
ENDED = re.compile(rb'"TASK_STATE_COMPLETED", ?"timestamp": ?"([^"]+)"')

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def open_streams(bench: Bench) -> Iterator[Figure]:
    """Many clients watch one task; then it ends, and all of them hear of it."""
    _room_for_sockets()
    server, trial = _waiting_server(bench)
    with server:
        used, behind = asyncio.run(_watch(server, trial))
    yield Figure(f"memory of an open stream, of {STREAMS:,}", used, "kB")
    yield Figure(f"from an end to the last of {STREAMS:,} streams", behind, "ms")


def waiting_sends(bench: Bench) -> Iterator[Figure]:
    """Many clients have sent a message and wait for its end."""
    _room_for_sockets()
    server, trial = _waiting_server(bench)
    with server:
        used = asyncio.run(_send(server, trial))
    yield Figure(f"memory of a waiting send, of {SENDS:,}", used, "kB", note="its task and its run among it")


def many_pieces(bench: Bench) -> Iterator[Figure]:
    """A piece of an answer: to commit it, to project it, and to tell it to one who has heard all before."""
    first, last = asyncio.run(_tell(bench))
    yield Figure(
        f"a piece of an answer, the last {COMPARED} of {PIECES:,}",
        last,
        "ms",
        [Peer(f"the first {COMPARED}", first)],
        note="wanted: at least 0.67x",
    )


# -- clients


def _waiting_server(bench: Bench) -> tuple[Server, Trial]:
    """A server whose profile `trial` waits until a door is opened."""
    trial = Trial(bench.fresh())
    return Server(trial.data(bench.fresh()), env=trial.env("chat,trial", **ROOM)), trial


def _room_for_sockets() -> None:
    """As many as may be, for this process and for those that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192) if soft < 8192 else soft, hard))


async def _watch(server: Server, trial: Trial) -> tuple[float, float]:
    """Memory of a stream in kB; milliseconds from the end of the task to the frame of the last client."""
    door = str(uuid.uuid4())
    params = {"message": _message(f"wait {door}"), "configuration": {"returnImmediately": True}}
    first = await _request(server.port, "SendMessage", params)
    task_id = json.loads((await first[0].readuntil(b"}}}")).partition(b"\r\n\r\n")[2])["result"]["task"]["id"]
    await _close([first])
    before = resident_mb(server.pid)
    clients = await asyncio.gather(*(_stream(server.port, task_id) for _ in range(STREAMS)))
    used = (resident_mb(server.pid) - before) * 1024 / STREAMS
    trial.open(door)
    async with asyncio.timeout(PATIENCE_S):
        behind = await asyncio.gather(*(_ended(reader) for reader, _ in clients))
    await _close(clients)
    return used, max(behind) * 1000


async def _send(server: Server, trial: Trial) -> float:
    """Memory of a waiting send in kB."""
    door = str(uuid.uuid4())
    before = resident_mb(server.pid)
    clients = [await _request(server.port, "SendMessage", {"message": _message(f"wait {door}")}) for _ in range(SENDS)]
    await asyncio.to_thread(
        server.wait, lambda: f"outrider_waiting_requests {SENDS}\n" in server.http.get("/metrics").text, PATIENCE_S
    )
    used = (resident_mb(server.pid) - before) * 1024 / SENDS
    trial.open(door)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(_ended(reader) for reader, _ in clients))
    await _close(clients)
    return used


async def _stream(port: int, task_id: str) -> Connection:
    """A stream that has told its task."""
    connection = await _request(port, "SubscribeToTask", {"id": task_id})
    await connection[0].readuntil(b"\n\n")
    return connection


async def _request(port: int, method: str, params: dict[str, object]) -> Connection:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    head = "POST /a2a HTTP/1.1\r\nHost: 127.0.0.1\r\nA2A-Version: 1.0\r\nContent-Type: application/json"
    writer.write(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    return reader, writer


async def _ended(reader: asyncio.StreamReader) -> float:
    """Seconds from the time at which the task ended to when this client was told so."""
    told = b""
    while not (found := ENDED.search(told)):
        more = await reader.read(65_536)
        assert more, told[-500:]
        told += more
    return time.time() - datetime.fromisoformat(found[1].decode()).timestamp()


async def _close(connections: list[Connection]) -> None:
    for _, writer in connections:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for _, writer in connections), return_exceptions=True)


def _message(text: str) -> dict[str, object]:
    skill = {"metadata": {"skill": "trial"}}
    return {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], **skill}


# -- pieces


async def _tell(bench: Bench) -> tuple[float, float]:
    """The median of the first pieces and of the last, in milliseconds."""
    db = await Database(bench.fresh() / "outrider.db").open()
    run = await db.write(_began)
    times = []
    for number in range(PIECES):
        start = time.perf_counter()
        await db.write(tasks.fragment, run, f"piece {number} of an answer that grows and grows, ")
        await db.write(journal.project)
        assert await db.read(journal.after, run.task_id or "", number + 2)
        times.append((time.perf_counter() - start) * 1000)
    await db.close()
    return median(times[:COMPARED]), median(times[-COMPARED:])


def _began(tx: Tx) -> Run:
    tx.x("insert into workers values ('bench', 'here', 1, :now, :now, :now)", now=tx.now)
    sessions.open_session(tx, "local", "bench")
    content = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    acceptance.accept(tx, Incoming("local", "bench", "m", "f", "hello", content))
    (run,) = queue.claim(tx, "bench", "turn", 1)
    tasks.begin(tx, run)
    return run
