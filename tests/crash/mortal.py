"""A server of many lives, each of which may end at a moment that a story names: at a commit, or after so many seconds.

A life is a real process, and its end is a real SIGKILL or SIGTERM. Nothing here decides when.
"""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import httpx

from tests.support.life import ANSWER_S, Cradle, Life, bare
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, wait
from tests.support.trial import PLUGIN

Lost = httpx.TransportError  # what a request raises whose server dies
ENV = {
    "OUTRIDER_LEASE_S": "0.5",  # so soon is taken over what a dead server held
    "OUTRIDER_SHUTDOWN_GRACE_S": "0.2",  # what does not end by itself is handed back
    # More than it is killed, and than a busy machine lets such a lease run out: nothing here fails for that.
    "OUTRIDER_MAX_ATTEMPTS": "8",
}
PORTS = range(20_000, 32_000)  # below those that the kernel takes for connections that go out
FOR_LATER = ("join", "purge", "remember")  # runs that are due in a quarter of an hour, in an hour, in a minute


class EndedByItself(AssertionError):
    """A life ended without being told to, or in another way than it was told."""


class Stopping(Lost):
    """A server that was told to end takes nothing more."""


class Mortal(Server):
    """A server of many lives on one data folder and one port. Public surface as in `Server`."""

    module = "tests.crash.fatal"

    def __init__(self, cradle: Cradle, data: Path, model: ScriptedModel, **more: str) -> None:
        super().__init__(data, env=ENV | model.env | more, port=lasting_port())
        self.diary = self._log.with_suffix(".diary")  # what it committed, a line before and a line after
        self._cradle = cradle
        self._life: Life | None = None
        self._pid = 0  # of the latest life
        self._ends: set[int] = set()  # the exit codes that the life may come to

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def running(self) -> bool:
        return not self.over()

    def begin(self, doom: str = "", after_s: float | None = None, *, stop: bool = False) -> bool:
        """A new life, which dies at a commit, or after so many seconds; with `stop` it is told to end itself then.

        False where it had ended before it was ready.
        """
        assert self.over(), "one life at a time"
        end = signal.SIGTERM if stop else signal.SIGKILL
        # Until the server has a handler of its own for it, a SIGTERM is simply the end.
        self._ends = {-signal.SIGKILL} | ({0, -signal.SIGTERM} if stop else set())
        argv = (doom, str(self.diary), str(end.value))
        env = bare() | {"PYTHONPATH": str(PLUGIN)} | self.env
        self._life = self._cradle.bear(self.module, argv, env, self._log, after_s, end)
        self._pid = self._life.pid
        wait(lambda: not self.running or self.ready(), 60, lambda: f"…{self.log()[-4000:]}")
        return self.running

    def over(self, timeout: float = 0) -> bool:
        """Whether no life is there; waits for its end for `timeout` seconds. Raises `EndedByItself`, once."""
        if self._life is None:
            return True
        try:
            code = self._life.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        self._life = None
        if code not in self._ends:
            raise EndedByItself(f"exit code {code}")
        return True

    def kill(self) -> None:
        """SIGKILL for the life that is there; returns once it is gone."""
        if not self.over():
            os.kill(self.pid, signal.SIGKILL)
            assert self.over(ANSWER_S)

    def idle(self) -> bool:
        """Nothing waits or works but what only the clock begins, and what can be read is what was written."""
        projected = "outrider_unprojected_tasks 0\n" in self.http.get("/metrics").text
        return projected and all(row["kind"] in FOR_LATER for row in self.get("/api/status")["queue"])

    def dead(self) -> bool:
        """After a request that failed: whether that was because the server has died."""
        return self.over(timeout=5)

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
