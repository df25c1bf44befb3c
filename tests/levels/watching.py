"""A search of everything for a word: each file and each sealed cell of a server's folder, each byte that it has sent.

Sealed cells are opened with the server's own key: that a word cannot be read there is not enough, it must not be there.
"""

import itertools
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Self

import httpx

from background.sealing import SEALED, Vault, key_file
from tests.support.receiver import Received, Receiver
from tests.support.server import Server

NUMBERS = itertools.count(1)
ENDS = ("COMPLETED", "FAILED", "CANCELED")


class Watch:
    """Records all that a server sends from now on: its answers, its events, and what webhooks get."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.receiver = Receiver()
        self._answers: list[tuple[str, bytes]] = []
        self._events = bytearray()
        self._listening: httpx.Response | None = None

    def start(self) -> Self:
        self.receiver.up()
        self.server.http.event_hooks["response"].append(self._record)
        self.server.start()
        self.listen()
        return self

    def close(self) -> None:
        self.server.close()
        self.receiver.down()

    def restart(self, **env: str) -> None:
        """End the server as it stands, and start it on the same data with other settings."""
        if self.server.running:
            self.server.kill()
        self.server.env |= env
        self.server.start()
        self.listen()

    def _record(self, response: httpx.Response) -> None:
        if "event-stream" not in response.headers.get("content-type", ""):
            self._answers.append((f"{response.request.method} {response.request.url.path}", response.read()))

    def listen(self) -> None:
        """Hear all events from the first on; ends with the server's process."""
        started = threading.Event()
        threading.Thread(target=self._hear, args=(started,), daemon=True).start()
        assert started.wait(10)

    def _hear(self, started: threading.Event) -> None:
        try:
            with httpx.stream(
                "GET", f"{self.server.url}/api/events", headers={"Last-Event-ID": "0"}, timeout=60, trust_env=False
            ) as stream:
                started.set()
                for piece in stream.iter_bytes():
                    self._events += piece
        except httpx.TransportError:
            pass  # the server was ended

    def stream(self, text: str, **more: Any) -> bytes:
        """A message over A2A, and every byte of its stream."""
        message = self.message(text, **more)
        request = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}}
        with self.server.http.stream("POST", "/a2a", json=request, headers={"A2A-Version": "1.0"}) as answer:
            told = b"".join(answer.iter_bytes())
        self._answers.append(("a stream", told))
        return told

    def message(self, text: str, session: str = "", skill: str = "chat") -> dict[str, Any]:
        number = next(NUMBERS)
        return {
            "messageId": f"m-{number}",
            "contextId": session or f"s-{number}",
            "role": "ROLE_USER",
            "parts": [{"text": text}],
            "metadata": {"skill": skill},
        }

    def send(self, text: str, hook: bool = False, **more: Any) -> dict[str, Any]:
        """A blocking send over A2A: the whole envelope. With `hook` its events go to the receiver, too."""
        configuration = {"taskPushNotificationConfig": {"url": self.receiver.url}} if hook else {}
        return self.server.rpc("SendMessage", {"message": self.message(text, **more), "configuration": configuration})

    def task(self, text: str, **more: Any) -> dict[str, Any]:
        """The task that a blocking send came to; with `hook` once its webhook has heard of its end."""
        task = self.send(text, **more)["result"]["task"]
        if more.get("hook"):
            self.server.wait(lambda: any(call.told in ENDS for call in self.calls_of(task["id"])))
        return task

    def calls_of(self, task_id: str) -> list[Received]:
        """The webhook calls that told of a task."""
        return [call for call in list(self.receiver.calls) if task_id.encode() in call.body]

    @property
    def events(self) -> bytes:
        """All that `/api/events` has sent."""
        return bytes(self._events)

    def forget_answers(self) -> None:
        """Look only at what is answered from now on; events, webhooks and the log are not forgotten."""
        self._answers.clear()

    def forget(self) -> None:
        """Look only at what is stored, and at what is sent from now on."""
        self._answers.clear()
        self._events.clear()
        self.receiver.calls.clear()

    def rests(self) -> bool:
        """Whether nothing more follows from what was done."""
        with self._registry() as db:
            return not db.execute(
                "select 1 from runs where ended_at is null and kind not in ('purge', 'remember')"
            ).fetchone()

    # -- looking

    def places(self, word: str) -> list[str]:
        """Where the word stands: names of files, tables, routes. Sorted, each once."""
        self._ask_everything()
        needle = word.encode()
        return sorted({where for where, said in self._everything() if needle in said})

    def tasks_that_say(self, word: str) -> set[str]:
        """The tasks whose rows, opened, hold the word."""
        with self._registry() as db:
            return {
                row["id" if table == "tasks" else "task_id"]
                for table in ("tasks", "results", "checkpoints", "questions", "fragments", "messages", "runs")
                for row in db.execute(f"select * from {table}").fetchall()
                if any(word.encode() in said for _, said in _opened(self._vault, table, row))
            }

    @property
    def _vault(self) -> Vault:
        return key_file(next(self.server.data.glob("seal.key*")))

    @contextmanager
    def _registry(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(f"file:{self.server.data}/outrider.db?mode=ro", uri=True)) as db:
            db.row_factory = sqlite3.Row
            yield db

    def _everything(self) -> Iterator[tuple[str, bytes]]:
        for path in self.server.data.rglob("*"):
            if path.is_file():
                yield f"file {path.name}", path.read_bytes()
        yield from self._cells()
        yield from list(self._answers)
        yield "events", self.events
        yield "log", self.server.log().encode()
        for call in list(self.receiver.calls):
            yield "webhook", call.body

    def _cells(self) -> Iterator[tuple[str, bytes]]:
        vault = self._vault
        with self._registry() as db:
            for (table,) in db.execute("select name from sqlite_master where type = 'table'").fetchall():
                for row in db.execute(f"select * from {table}").fetchall():
                    yield from _opened(vault, table, row)

    def _ask_everything(self) -> None:
        """Each route that shows anything, for each session, task and job there is."""
        http = self.server.http
        with self._registry() as db:
            tasks = [row[0] for row in db.execute("select id from tasks")]
            jobs = [row[0] for row in db.execute("select id from jobs")]
            sessions = [row[0] for row in db.execute("select id from sessions where kind = 'chat'")]
        for task in tasks:
            self.server.rpc("GetTask", {"id": task})
        for route in ("/api/sessions", "/api/background?dismissed=true", "/api/background", "/api/status", "/metrics"):
            http.get(route)
        http.get("/api/knowledge/documents")
        http.get("/api/knowledge/search", params={"q": "report canary summary"})
        for job in jobs:
            http.get(f"/api/background/{job}")
            http.get(f"/api/background/{job}/report")
        for session in sessions:
            for route in ("", "/messages", "/export"):
                http.get(f"/api/sessions/{session}{route}")


def _opened(vault: Vault, table: str, row: sqlite3.Row) -> Iterator[tuple[str, bytes]]:
    names, columns = SEALED.get(table, ((), ()))
    place = "/".join(str(row[name]) for name in names)
    for column in row.keys():  # noqa: SIM118 - a row is iterated by its values
        value = row[column]
        if column in columns and value is not None:
            yield f"{table}.{column}", vault.unseal(f"{table}.{column}", place, value).encode()
        elif value is not None:
            yield f"{table}.{column}", value if isinstance(value, bytes) else str(value).encode()
