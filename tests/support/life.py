"""The test's side of `cradle.py`: real processes that begin in a fraction of the time that the imports take.

A life is used as a `subprocess.Popen` is. It is a process of its own, in a group of its own, and its end is a real one.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
ANSWER_S = 60.0


def bare() -> dict[str, str]:
    """The environment without the machine's own settings or keys."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}


class Life:
    """One forked process: `pid`, and `returncode` once it is known to have ended."""

    def __init__(self, connection: socket.socket, order: dict[str, Any]) -> None:
        self.returncode: int | None = None
        self._connection = connection
        self._asking = threading.Lock()
        connection.sendall(json.dumps(order).encode() + b"\n")
        self.pid: int = self._answer()["pid"]

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it lives."""
        with self._asking:
            if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
                self.returncode = os.waitstatus_to_exitcode(self._answer()["ended"])
                self._connection.close()
            return self.returncode

    def wait(self, timeout: float) -> int:
        """The exit code, once it has ended; raises `subprocess.TimeoutExpired`."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if (left := deadline - time.monotonic()) <= 0:
                raise subprocess.TimeoutExpired("a life", timeout)
            with contextlib.suppress(ValueError):  # another thread was told of the end
                select.select([self._connection], [], [], left)
        return code

    def _answer(self) -> dict[str, Any]:
        """The next line, and no byte more: what follows tells `poll` that there is something to read."""
        line = b""
        while not line.endswith(b"\n"):
            assert select.select([self._connection], [], [], ANSWER_S)[0], "the cradle does not answer"
            piece = self._connection.recv(1)
            assert piece, "the cradle has ended"
            line += piece
        return json.loads(line)


class Cradle:
    """The running program, from the first life on. Close it after them: that ends those that are left."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def bear(
        self,
        module: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        after_s: float | None = None,
        end: int = signal.SIGKILL,
    ) -> Life:
        """Begins `python -m MODULE ARGV`, which gets the signal `end` after so many seconds. Output goes behind what is in `log`."""
        order = {
            "module": module,
            "argv": list(argv),
            "env": dict(env),
            "log": str(log),
            "after_s": after_s,
            "end": end,
        }
        return Life(self._connected(), order)

    def close(self) -> None:
        if self._process:
            assert self._process.stdin
            self._process.stdin.close()
            self._process.wait(ANSWER_S)
            self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connected(self) -> socket.socket:
        with self._starting:
            if self._process is None:
                self._begin()
        assert self._process
        deadline = time.monotonic() + ANSWER_S
        connection = socket.socket(socket.AF_UNIX)
        while connection.connect_ex(self._path):  # it is still importing
            assert self._process.poll() is None, "the cradle has ended"
            assert time.monotonic() < deadline, "the cradle does not open"
            time.sleep(0.02)
        return connection

    def _begin(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="outrider-cradle-")
        self._path = f"{self._folder.name}/socket"
        program = [sys.executable, "-m", "tests.support.cradle", self._path]
        # Not on a terminal, nor is what it bears: lines are written as they are into a file.
        self._process = subprocess.Popen(
            program,
            cwd=ROOT,
            env=bare(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
