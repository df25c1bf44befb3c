"""A program that has imported all that a server needs, and forks processes: `python -m tests.support.cradle SOCKET`.

The test's side is `life.py`. Whoever connects to the socket orders one life, by a line of JSON: {"module", "argv",
"env", "log", "after_s", "end"}. It does what `python -m MODULE ARGV` does, as far as the module's `main` does all of it;
after `after_s` seconds, if that is a number, it gets the signal `end`. The answers are its `pid`, once it stands on its
own, and its wait status, `ended`. A connection that is closed ends its life, the end of standard input all of them.
"""

import contextlib
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
from typing import Any, NoReturn

# What a server has imported once it works: here, so that no life has to.
WANTED = (
    "anyio._backends._asyncio",
    "apsw.aio",
    "genai_prices.data",
    "openai.resources.chat.completions",
    "pydantic_ai.models.openai",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
    "web.process",
    "web.cli",
)
KEPT = 3  # the one file beside the standard ones that a life has open when it begins
FILES = 4096  # more than are ever open here


@dataclass
class Life:
    """A forked process."""

    pid: int
    pipe: int  # readable once the life is over: nobody else has the other end
    connection: socket.socket
    until: float | None
    end: int  # the signal that it gets then

    def tell(self, **answer: Any) -> None:
        self.connection.sendall(json.dumps(answer).encode() + b"\n")

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)
        self.until = None

    def kill(self) -> None:
        """Ends it, and what it has started."""
        with contextlib.suppress(ProcessLookupError):  # it does not stand on its own yet
            os.killpg(self.pid, signal.SIGKILL)
        self.signal(signal.SIGKILL)


def main(path: str) -> None:
    """Bear and bury until standard input ends."""
    lives: list[Life] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        while sys.stdin not in (ready := _ready(listener, lives)):
            for life in list(lives):
                if life.pipe in ready:
                    lives.remove(life)
                    _bury(life)
                elif life.connection in ready:
                    life.kill()
                elif life.until and life.until <= time.monotonic():
                    life.signal(life.end)
            if listener in ready:
                lives.append(_bear(listener.accept()[0]))
    for life in lives:
        life.kill()
        _bury(life)


def _ready(listener: socket.socket, lives: list[Life]) -> list[Any]:
    """What there is to be done; nothing where it is time to end somebody."""
    ends = [life.until for life in lives if life.until is not None]
    left = max(0.0, min(ends) - time.monotonic()) if ends else None
    watched = [sys.stdin, listener, *(source for life in lives for source in (life.pipe, life.connection))]
    return select.select(watched, [], [], left)[0]


def _bear(connection: socket.socket) -> Life:
    with connection.makefile("rb") as orders:
        order = json.loads(orders.readline())
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        live(order, connection, writable)
    os.close(writable)
    until = None if order["after_s"] is None else time.monotonic() + order["after_s"]
    return Life(pid, readable, connection, until, order["end"])


def _bury(life: Life) -> None:
    os.close(life.pipe)
    with life.connection:
        _, status = os.waitpid(life.pid, 0)
        with contextlib.suppress(BrokenPipeError):  # nobody asks any more
            life.tell(ended=status)


def live(order: dict[str, Any], connection: socket.socket, pipe: int) -> NoReturn:
    """A process of its own from here on: its group, its files, its environment, its program."""
    os.setsid()
    connection.sendall(json.dumps({"pid": os.getpid()}).encode() + b"\n")
    connection.detach()
    _keep_only(pipe, order["log"])
    code = 1
    try:
        code = _run(order)
    except BaseException:  # noqa: BLE001 - the end of a process: told in its log
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _keep_only(pipe: int, log: str) -> None:
    for number, target in ((0, os.open(os.devnull, os.O_RDONLY)), (1, opened := _log(log)), (2, opened)):
        os.dup2(target, number)
    os.dup2(pipe, KEPT, inheritable=False)
    os.closerange(KEPT + 1, FILES)


def _log(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _run(order: dict[str, Any]) -> int:
    """The program, and how it ended."""
    os.environ.clear()
    os.environ.update(order["env"])
    sys.path[1:1] = filter(None, order["env"].get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = [order["module"], *order["argv"]]
    try:
        importlib.import_module(order["module"]).main()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


if __name__ == "__main__":
    for name in WANTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    main(sys.argv[1])
