"""A program that has imported all that a server needs, and forks servers: `python -m tests.crash.cradle SOCKET`.

Whoever connects to the socket has a lane: a fork that bears one server after the other, as JSON lines order it.
`{"env", "log", "diary", "doom", "after_s", "end"}` begins a life, which gets the signal `end` at the commit `doom` (see
`fatal.py`) or after `after_s` seconds; the answer is its `pid`, and once it is over its wait status, `ended`.
`{"kill": true}` ends it, and so does the end of the orders. The end of standard input is the end of everything.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Any

from tests.crash.fatal import Fate, arm
from web import app, settings

# What a server imports only once it works: here, so that no life has to.
LATE = (
    "anyio._backends._asyncio",
    "apsw.aio",
    "genai_prices.data",
    "openai.resources.chat.completions",
    "pydantic_ai.models.openai",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.httptools_impl",
)


def main(path: str) -> None:
    """Open lanes until standard input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a lane ended
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                Lane(connection).run()
                os._exit(0)
            connection.close()


@dataclass
class Life:
    """A forked server."""

    pid: int
    pipe: int  # readable once the life is over: nobody else has the other end
    until: float | None
    end: int  # the signal that it gets then

    def left(self) -> float | None:
        """Seconds until it is to be ended."""
        return None if self.until is None else max(0.0, self.until - time.monotonic())

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)
        self.until = None


class Lane:
    """Lives, one at a time, as they are ordered over `connection`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._life: Life | None = None

    def run(self) -> None:
        """Until there are no more orders, and no life."""
        listening = True
        while listening or self._life:
            life = self._life
            watched = [*([self._connection] if listening else []), *([life.pipe] if life else [])]
            ready = select.select(watched, [], [], life.left() if life else None)[0]
            if life and life.pipe in ready:
                self._bury(life)
            elif ready:
                orders = self._connection.recv(1 << 20)
                listening = bool(orders)
                for order in orders.splitlines() or [b'{"kill": true}']:
                    self._follow(json.loads(order))
            elif life:
                life.signal(life.end)

    def _follow(self, order: dict[str, Any]) -> None:
        if "kill" not in order:
            self._life = self._bear(order)
        elif self._life:  # it may have ended by then
            self._life.signal(signal.SIGKILL)

    def _bear(self, order: dict[str, Any]) -> Life:
        readable, writable = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(readable)
            self._connection.close()
            live(order)
        os.close(writable)
        self._tell(pid=pid)
        until = None if order["after_s"] is None else time.monotonic() + order["after_s"]
        return Life(pid, readable, until, order["end"])

    def _bury(self, life: Life) -> None:
        os.close(life.pipe)
        self._tell(ended=os.waitpid(life.pid, 0)[1])
        self._life = None

    def _tell(self, **answer: Any) -> None:
        self._connection.sendall(json.dumps(answer).encode() + b"\n")


def live(order: dict[str, Any]) -> None:
    """What `outrider serve` does, in this process, on the way to its doom. Never returns."""
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream, target in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
        os.dup2(target, stream)
    code = 70
    try:
        os.environ.clear()
        os.environ.update(order["env"])
        arm(Fate(order["doom"], order["diary"], order["end"]))
        code = app.serve(settings.load({}), worker=True)
    except BaseException:  # noqa: BLE001 - the end of a process: told in its log
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    for name in LATE:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    main(sys.argv[1])
