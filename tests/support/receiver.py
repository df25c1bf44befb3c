"""A real receiver of webhooks on loopback, which records what it gets and behaves as a test says; and name servers that lie.

It runs on threads of the test run. What it answers is decided call by call: `receiver.answers = [500, 500]` and then
200 again. Down, it has a port that nobody listens on, and keeps it over `up()`.
"""

import json
import socket
import ssl
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.support.server import wait


@dataclass
class Received:
    """One call, as it came. Header names are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def kind(self) -> str:
        """The one member of its StreamResponse."""
        (member,) = self.event
        return member

    @property
    def told(self) -> str:
        """In a word: the state, or `artifact`."""
        update = self.event[self.kind]
        return update["status"]["state"].removeprefix("TASK_STATE_") if "status" in update else "artifact"

    @property
    def delivery(self) -> str:
        return self.headers["x-outrider-delivery"]

    @property
    def attempt(self) -> int:
        return int(self.headers["x-outrider-attempt"])


@dataclass(frozen=True)
class Answer:
    """What a call is answered with. `gate`: only once the test has opened it; `cut`: not at all, the line drops."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    gate: threading.Event | None = None
    cut: bool = False
    body: bytes = b""


class Receiver:
    """`with Receiver() as receiver:`; `receiver.url` is where to call it. With `tls` it speaks https."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self._tls = tls
        self.host = host
        self.answers: list[int | Answer] = []  # for the next calls, one each; then `otherwise`
        self.otherwise: int | Answer = 200
        self.calls: list[Received] = []
        self.connections = 0
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        with socket.create_server((host, 0), family=_family(host)) as probe:
            self.port: int = probe.getsockname()[1]

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}/hook"

    def up(self) -> Self:
        assert self._server is None, "it is up"
        self._server = _Server(self, (self.host, self.port), self._tls)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="receiver")
        self._thread.start()
        return self

    def down(self) -> None:
        """Nobody listens any more; calls that are being answered are answered."""
        if self._server and self._thread:
            self._server.shutdown()
            self._thread.join(10)
            self._server.server_close()
            self._server = None

    def __enter__(self) -> Self:
        return self.up()

    def __exit__(self, *_: object) -> None:
        self.down()

    def wait(self, count: int, timeout: float = 20) -> list[Received]:
        """Waits until it has had so many calls, and returns all of them."""
        wait(lambda: len(self.calls) >= count, timeout, lambda: f"{[call.told for call in self.calls]}")
        return list(self.calls)

    def wait_for(self, told: str, timeout: float = 20) -> Received:
        """Waits for the first call that tells of this state, or of an `artifact`."""
        found = wait(
            lambda: [call for call in list(self.calls) if call.told == told],
            timeout,
            lambda: f"{[call.told for call in self.calls]}",
        )
        return found[0]

    def take(self, received: Received) -> Answer:
        with self._lock:
            self.calls.append(received)
            answer = self.answers.pop(0) if self.answers else self.otherwise
        return answer if isinstance(answer, Answer) else Answer(answer)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    allow_reuse_address = True

    def __init__(self, receiver: Receiver, place: tuple[str, int], tls: ssl.SSLContext | None) -> None:
        self.receiver = receiver
        self.tls = tls
        self.address_family = _family(place[0])
        super().__init__(place, _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.receiver.connections += 1
        connection.settimeout(15)  # what never sends anything must not keep a thread for ever
        return connection, address

    def finish_request(self, request: Any, client_address: Any) -> None:
        """On the call's own thread: a handshake that fails is the client's business."""
        if self.tls:
            try:
                request = self.tls.wrap_socket(request, server_side=True)
            except OSError:
                return
        with request:
            super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of what is tested."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        assert isinstance(self.server, _Server)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.receiver.take(Received(self.command, self.path, headers, body))
        if answer.gate:
            answer.gate.wait(30)
        self.close_connection = True
        if answer.cut:
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_PUT = do_POST  # a redirect that is followed would come as a GET

    def log_message(self, format: str, *args: Any) -> None:
        """The test reads `calls` instead."""


class LyingResolver:
    """A name server under a test's control: `LyingResolver({"hook.example": [["93.184.216.34"], ["127.0.0.1"]]})`.

    Each question gets the next of the name's answers, and the last one for ever; a name it does not know leads nowhere.
    """

    def __init__(self, answers: dict[str, Iterable[list[str]]]) -> None:
        self._answers = {name: list(lists) for name, lists in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        answers = self._answers.get(host)
        if not answers:
            raise OSError("name or service not known")
        return answers.pop(0) if len(answers) > 1 else answers[0]
