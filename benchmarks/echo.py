"""How many blocking messages a second an A2A server answers, and how long one takes: Outrider beside the peer.

Every server is loaded in turn, round after round, so that a slow minute of the machine meets all alike.
"""

from collections.abc import Callable, Iterator
from statistics import median

from benchmarks.bench import Bench, PeerServer
from benchmarks.figures import Figure, Peer
from tests.support.server import Server

OURS = "Outrider"


def blocking_messages(bench: Bench) -> Iterator[Figure]:
    """8 connections, each sends an echo message and waits for its COMPLETED task."""
    servers: dict[str, Callable[[], Server | PeerServer]] = {
        OURS: bench.outrider,
        "the SDK's server on SQLite": lambda: bench.peer(durable=True),
        "the SDK's server in memory": lambda: bench.peer(durable=False),
    }
    loads: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
    for _ in range(bench.rounds):
        for name, running in servers.items():
            with running() as server:
                loads[name].append(bench.load(server.port))

    def figure(name: str, key: str, unit: str, more: bool = False) -> Figure:
        middle = {server: median(load[key] for load in all_) for server, all_ in loads.items()}
        peers = [Peer(server, value) for server, value in middle.items() if server != OURS]
        return Figure(name, middle[OURS], unit, peers, more)

    yield figure("blocking messages, 8 connections", "per_second", "/s", more=True)
    yield figure("  half of them are answered within", "p50_ms", "ms")
    yield figure("  99 of 100 are answered within", "p99_ms", "ms")
