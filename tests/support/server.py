"""Real Outrider processes for tests: started, killed, frozen and started again on one data folder and one port.

Every process is a group of its own, and is ended by its own id; nothing is ever ended by name. A test talks to a
server through its public surface alone: `/api`, `/a2a`, and signals. Where there is a cradle (`life.py`), as in every test
run, processes are forked from it, which spares them their imports; else they begin from nothing.
"""

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import httpx

from tests.support.life import ROOT, Cradle, Life, bare

ENDED = {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"}
NUMBERS = itertools.count(1)
T = TypeVar("T")


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def wait(condition: Callable[[], T], timeout: float = 20, what: Callable[[], str] = str) -> T:
    """Asks until the answer is true, and returns it; AssertionError at the deadline, with what `what` then says.

    It asks often at first and then at ease, so that a quick thing is not waited for and a slow one not disturbed.
    """
    deadline, pause = time.monotonic() + timeout, 0.01
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"still {answer!r} after {timeout} s\n{what()}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.25)
    return answer


class Process:
    """One `outrider` command running on a data folder: `Process(data, "worker")`.

    `env` is laid over a bare environment: nothing of the machine's own settings or keys reaches the process.
    """

    module = "web.cli"  # its `main` is the whole program
    fresh = False  # whether it begins from nothing, with a cradle too
    python = sys.executable  # of a fresh one
    cradle: ClassVar[Cradle | None] = None

    def __init__(self, data: Path, *command: str, env: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.env = {"OUTRIDER_DATA": str(data), **(env or {})}
        self._command = command
        self._log = data.with_name(f"{data.name}-{next(NUMBERS)}.log")  # beside the folder: what is in it is counted
        self._process: subprocess.Popen[bytes] | Life | None = None
        self._groups: list[int] = []  # one a start: what a killed process had started outlives it

    @property
    def pid(self) -> int:
        assert self._process, "not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Starts it, and returns once it is ready for work; AssertionError, with its log, if it ends instead."""
        assert not self.running, "already running"
        self._process = self._begin()
        self._groups.append(self._process.pid)
        self.wait(lambda: self.ready() or not self.running, 60)
        assert self.running, f"it ended with {self._process.returncode} instead of starting\n{self.log()}"
        return self

    def ready(self) -> bool:
        """Whether it does its work. A bare process cannot be asked: it is ready when it runs."""
        return self.running

    def kill(self) -> None:
        """SIGKILL: it ends where it stands."""
        self._signal(signal.SIGKILL)
        self._reap(10)

    def stop(self, timeout: float = 30) -> int:
        """SIGTERM: it hands its work back. Returns its exit code."""
        self._signal(signal.SIGTERM)
        return self._reap(timeout)

    def restart(self) -> Self:
        """Kills it if it still runs, and starts it again on the same data."""
        if self.running:
            self.kill()
        return self.start()

    def freeze(self) -> None:
        """SIGSTOP: it stands still, its leases run out, and it knows nothing of it."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def log(self) -> str:
        """All that it has printed, over all its starts."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def wait(self, condition: Callable[[], T], timeout: float = 20) -> T:
        """The module's `wait`; a failure shows the end of the log."""
        return wait(condition, timeout, lambda: f"…{self.log()[-4000:]}")

    def close(self) -> None:
        """Ends it and all that it started, in all its starts."""
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self._groups.clear()
        if self._process:
            self._process.wait(10)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> subprocess.Popen[bytes] | Life:
        env = bare() | self.env
        if self.cradle and not self.fresh:
            return self.cradle.bear(self.module, self._command, env, self._log)
        command = [self.python, "-m", self.module, *self._command]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _signal(self, number: signal.Signals) -> None:
        assert self.running, f"it is not running\n{self.log()[-4000:]}"
        os.kill(self.pid, number)

    def _reap(self, timeout: float) -> int:
        assert self._process
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running {timeout} s after the signal\n{self.log()[-4000:]}") from None


class Server(Process):
    """`outrider serve`, ready when /readyz says so; `url` and the client `http` stay the same over restarts."""

    def __init__(self, data: Path, *options: str, env: Mapping[str, str] | None = None, port: int = 0) -> None:
        self.port = port or free_port()
        super().__init__(data, "serve", *options, env={"OUTRIDER_PORT": str(self.port), **(env or {})})
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=30, trust_env=False)
        # Without a worker in it, a server alone never becomes ready.
        self._ready_at = "/healthz" if "--no-worker" in options else "/readyz"

    def ready(self) -> bool:
        try:
            return self.http.get(self._ready_at).status_code == 200
        except httpx.TransportError:
            return False

    def close(self) -> None:
        super().close()
        self.http.close()

    # --- the public surface, as a story tells it --------------------------------------------------------------------

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        """A GET that must succeed, as JSON."""
        return self._json(self.http.get(path, params=params))

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        """A POST of JSON that must succeed, as JSON."""
        return self._json(self.http.post(path, json=body))

    def say(self, session: str, text: str, **more: Any) -> str:
        """The user speaks. Returns the turn's task id; `more` is `message_id`, `skill`, `task_id`, ..."""
        return self.post(f"/api/sessions/{session}/messages", text=text, **more)["task_id"]

    def ask(self, session: str, text: str, timeout: float = 20, **more: Any) -> str:
        """The user speaks and waits for the answer, which is returned."""
        return answer_of(self.ended(self.say(session, text, **more), timeout))

    def spawn(self, session: str, prompt: str, description: str = "a job", **more: Any) -> dict[str, Any]:
        """Sends one job out, as a plugin or a script would. Returns the JOB."""
        return self.post("/api/background", session=session, prompt=prompt, description=description, **more)

    def job(self, job_id: str) -> dict[str, Any]:
        return self.get(f"/api/background/{job_id}")

    def jobs(self, session: str, **filters: Any) -> list[dict[str, Any]]:
        return self._all("/api/background", "jobs", session=session, **filters)

    def messages(self, session: str) -> list[dict[str, Any]]:
        return self._all(f"/api/sessions/{session}/messages", "messages")

    def task(self, task_id: str) -> dict[str, Any]:
        """The task as an A2A client gets it."""
        return self.rpc("GetTask", {"id": task_id})["result"]

    def ended(self, task_id: str, timeout: float = 20) -> dict[str, Any]:
        """The task once it has ended, however it ended."""
        self.wait(lambda: self.task(task_id)["status"]["state"] in ENDED, timeout)
        return self.task(task_id)

    def rpc(self, method: str, params: dict[str, Any], **headers: str) -> dict[str, Any]:
        """One A2A JSON-RPC call of version 1.0: the whole envelope, with `result` or `error`."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.http.post("/a2a", json=request, headers={"A2A-Version": "1.0", **headers}).json()

    def _all(self, path: str, key: str, **params: Any) -> list[dict[str, Any]]:
        """All pages of a list."""
        rows, cursor = [], ""
        while True:
            page = self.get(path, **params, **({"cursor": cursor} if cursor else {}))
            rows += page[key]
            if not (cursor := page.get("next_cursor", "")):
                return rows

    def _json(self, response: httpx.Response) -> dict[str, Any]:
        assert response.is_success, (
            f"{response.request.url}: {response.status_code} {response.text}\n{self.log()[-4000:]}"
        )
        return response.json()


def answer_of(task: dict[str, Any]) -> str:
    """The text of a task's artifacts, in order."""
    return "\n".join(
        part["text"] for artifact in task.get("artifacts", ()) for part in artifact["parts"] if "text" in part
    )
