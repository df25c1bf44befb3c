"""The test's side of `cradle.py`: servers that begin in a fraction of the time that the imports take, to be killed.

A life is a real process, and its end is a real SIGKILL or SIGTERM. Nothing here decides when.
"""

import contextlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

from tests.support.scripted import ScriptedModel
from tests.support.server import ROOT, Server, wait
from tests.support.trial import PLUGIN

ANSWER_S = 60.0
Lost = httpx.TransportError  # what a request raises whose server dies
ENV = {
    "OUTRIDER_LEASE_S": "0.5",  # so soon is taken over what a dead server held
    "OUTRIDER_SHUTDOWN_GRACE_S": "0.2",  # what does not end by itself is handed back
    # More than it is killed, and than a busy machine lets such a lease run out: nothing here fails for that.
    "OUTRIDER_MAX_ATTEMPTS": "8",
}
PORTS = range(20_000, 32_000)  # below those that the kernel takes for connections that go out
FOR_LATER = ("join", "purge")  # runs that are due in a quarter of an hour, or in an hour


class EndedByItself(AssertionError):
    """A life ended without being told to, or in another way than it was told."""


class Stopping(Lost):
    """A server that was told to end takes nothing more."""


class Cradle:
    """The running program. Close it after its nurseries."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="outrider-cradle-")
        self._path = f"{self._folder.name}/socket"
        bare = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        bare["PYTHONPATH"] = str(PLUGIN)  # which whoever wants it must find before it is born
        program = [sys.executable, "-m", "tests.crash.cradle", self._path]
        self._process = subprocess.Popen(program, cwd=ROOT, env=bare, stdin=subprocess.PIPE, start_new_session=True)

    def nursery(self) -> "Nursery":
        """A lane of its own. Waits until the program has imported everything."""
        connection = socket.socket(socket.AF_UNIX)
        wait(lambda: connection.connect_ex(self._path) == 0 or self._process.poll() is not None, ANSWER_S)
        assert self._process.poll() is None, "the cradle has ended"
        return Nursery(connection)

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(ANSWER_S)
        self._folder.cleanup()


class Nursery:
    """One life after the other, one at a time. Close it: that ends the life that is there."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._living = False
        self._ends: set[int] = set()  # the exit codes that the life may come to

    def begin(self, **order: Any) -> int:
        """Begins a life, see `cradle.py` for what may be said of it. Returns its process id."""
        assert self.over(), "one life at a time"
        self._order(**order)
        # Until the server has a handler of its own for it, a SIGTERM is simply the end.
        self._ends = {-signal.SIGKILL} | ({0, -signal.SIGTERM} if order["end"] == signal.SIGTERM else set())
        self._living = True
        return self._answer()["pid"]

    def over(self, timeout: float = 0) -> bool:
        """Whether no life is there; waits for its end for `timeout` seconds. Raises `EndedByItself`."""
        if self._living and select.select([self._connection], [], [], timeout)[0]:
            self._living = False
            code = os.waitstatus_to_exitcode(self._answer()["ended"])
            if code not in self._ends:
                raise EndedByItself(f"exit code {code}")
        return not self._living

    def kill(self) -> None:
        """SIGKILL for the life that is there; returns once it is gone."""
        if not self.over():
            self._order(kill=True)
            assert self.over(ANSWER_S)

    def close(self) -> None:
        self.kill()
        self._connection.close()

    def _order(self, **order: Any) -> None:
        self._connection.sendall(json.dumps(order).encode() + b"\n")

    def _answer(self) -> dict[str, Any]:
        """The next line, and no byte more: what follows tells `over` that there is something to read."""
        line = b""
        while not line.endswith(b"\n"):
            assert select.select([self._connection], [], [], ANSWER_S)[0], "the cradle does not answer"
            piece = self._connection.recv(1)
            assert piece, "the lane has ended"
            line += piece
        return json.loads(line)


class Mortal(Server):
    """A server of many lives on one data folder and one port. Public surface as in `Server`."""

    def __init__(self, nursery: Nursery, data: Path, model: ScriptedModel, **more: str) -> None:
        speaks = {"OUTRIDER_MODEL": "openai-chat:scripted", "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "none"}
        super().__init__(data, env=ENV | speaks | more, port=lasting_port())
        self.nursery = nursery
        self.diary = self._log.with_suffix(".diary")  # what it committed, a line before and a line after
        self._pid = 0

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def running(self) -> bool:
        return not self.nursery.over()

    def begin(self, doom: str = "", after_s: float | None = None, *, stop: bool = False) -> bool:
        """A new life, which dies at a commit, or after so many seconds; with `stop` it is told to end itself then.

        False where it had ended before it was ready.
        """
        order = {"env": self.env, "log": str(self._log), "diary": str(self.diary), "doom": doom, "after_s": after_s}
        self._pid = self.nursery.begin(**order, end=signal.SIGTERM if stop else signal.SIGKILL)
        wait(lambda: not self.running or self.ready(), 60, lambda: f"…{self.log()[-4000:]}")
        return self.running

    def kill(self) -> None:
        self.nursery.kill()

    def idle(self) -> bool:
        """Nothing waits or works but what only the clock begins, and what can be read is what was written."""
        projected = "outrider_unprojected_tasks 0\n" in self.http.get("/metrics").text
        return projected and all(row["kind"] in FOR_LATER for row in self.get("/api/status")["queue"])

    def dead(self) -> bool:
        """After a request that failed: whether that was because the server has died."""
        return self.nursery.over(timeout=5)

    def rpc(self, method: str, params: dict[str, Any], **headers: str) -> dict[str, Any]:
        answer = super().rpc(method, params, **headers)
        _require_open(json.dumps(answer.get("error", "")))
        return answer

    def _json(self, response: httpx.Response) -> dict[str, Any]:
        if response.status_code == 503:
            _require_open(response.text)
        return super()._json(response)

    def close(self) -> None:
        self.kill()
        self.http.close()


def lasting_port() -> int:
    """A loopback port that nobody listens on now, and that no connection goes out from while its server is dead."""
    while True:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port := random.choice(PORTS))):
            return port


def _require_open(refusal: str) -> None:
    """Raises `Stopping` for what is refused because a server was told to end."""
    if "WORKER_UNAVAILABLE" in refusal:
        raise Stopping(refusal)
