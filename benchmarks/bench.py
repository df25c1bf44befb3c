"""What figures are measured with: servers in processes of their own, started on fresh data and gone afterwards."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.support.server import ROOT, Process, Server, free_port

PEER_PYTHON = ROOT / "benchmarks/.peer-venv/bin/python"


class PeerServer(Process):
    """The peer's server, with its tasks in a SQLite file or in memory."""

    python, module, fresh = str(PEER_PYTHON), "benchmarks.peer.server", True  # of a venv of its own

    def __init__(self, data: Path, durable: bool) -> None:
        self.port = free_port()
        database = ("--database", str(data / "peer.db")) if durable else ()
        super().__init__(data, "--port", str(self.port), *database)

    def ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/.well-known/agent-card.json", trust_env=False).is_success
        except httpx.TransportError:
            return False


class Bench:
    """Where a figure function gets what it measures. `seconds` is how long one load lasts."""

    def __init__(self, folder: Path, seconds: float, rounds: int) -> None:
        self.seconds = seconds
        self.rounds = rounds
        self._folder = folder
        self._made = 0

    def fresh(self) -> Path:
        """A new empty data folder."""
        self._made += 1
        folder = self._folder / f"{self._made:03d}"
        folder.mkdir()
        return folder

    def outrider(self, *options: str, data: Path | None = None, **env: str) -> Server:
        """An `outrider serve` with the offline model and the echo profile; it runs inside its `with`."""
        env = {"OUTRIDER_MODEL": "offline", "OUTRIDER_PROFILES": "chat,echo"} | env
        return Server(data or self.fresh(), *options, env=env)

    def peer(self, *, durable: bool, data: Path | None = None) -> PeerServer:
        """A server of the peer's; it runs inside its `with`."""
        return PeerServer(data or self.fresh(), durable)

    def load(self, port: int, **options: Any) -> dict[str, float]:
        """Loads one server with `benchmarks.load`, in a process of its own. Returns its figures."""
        chosen = [f"--{name.replace('_', '-')}={value}" for name, value in {"seconds": self.seconds, **options}.items()]
        command = [sys.executable, "-m", "benchmarks.load", str(port), *chosen]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120 + 4 * self.seconds)
        if done.returncode:
            raise SystemExit(f"the load failed: {done.stderr[-2000:]}")
        return json.loads(done.stdout)


def resident_mb(pid: int) -> float:
    """How much memory a process has in use."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
