"""A server that says what a test tells it, over real HTTP: for tests of what asks a server. Decides nothing."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.support.server import free_port

Turn = Callable[["Fake", str], Awaitable[None]]
NOW = "2026-11-30T12:00:00.000Z"


def job(number: int = 1, **fields: Any) -> dict[str, Any]:
    """A JOB as the contract has it; `number` makes its id."""
    return {
        "id": f"bg-{number:012x}",
        "session": "s",
        "batch_id": "batch",
        "subagent_type": "researcher",
        "description": f"look into {number}",
        "prompt": "Find it.",
        "status": "queued",
        "error": None,
        "partial": False,
        "canceled_by": None,
        "task_id": f"job-task-{number}",
        "created_at": NOW,
        "started_at": None,
        "completed_at": None,
        "notified": False,
        "notified_at": None,
        "notified_in": None,
        "delivery": {"state": "none", "attempts": 0, "last_error": None},
        "indexed": False,
        "usage": {"requests": 1, "input_tokens": 2, "output_tokens": 3, "tool_calls": 4},
        "report_chars": 0,
        "excerpt": "",
    } | fields


def ended(number: int = 1, status: str = "completed", delivery: str = "pending", **fields: Any) -> dict[str, Any]:
    """A JOB that has ended and was not told yet."""
    return job(
        number,
        status=status,
        started_at=NOW,
        completed_at=NOW,
        delivery={"state": delivery, "attempts": 0, "last_error": None},
        report_chars=6,
        **fields,
    )


def told(number: int, task: str, **fields: Any) -> dict[str, Any]:
    """A JOB that the turn `task` has told of."""
    return ended(number, delivery="delivered", notified=True, notified_at=NOW, notified_in=task, **fields)


def error(status: int, code: str, message: str) -> Response:
    """An error as `/api` has it."""
    return answer({"error": {"code": code, "message": message, "details": {}}}, status)


def answer(content: Any, status: int = 200) -> Response:
    """JSON in ASCII, which may hold half characters too."""
    return Response(json.dumps(content), status, media_type="application/json")


class Server(uvicorn.Server):
    """Says when it is up."""

    up: threading.Event

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


class Fake:
    """Answers from what a test has put into it.

    `answers` maps "GET /path" to a response, or to JSON; it wins over everything. `turn` is what happens after a
    message was taken. `page` is how many items a page of a list has. `seen` are the requests, in order.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.streams: list[asyncio.Queue[bytes | None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.forget()

    def forget(self) -> None:
        """As if just started; turns that still speak are stopped."""
        for task in self._tasks:
            task.cancel()
        self.cut()
        self.answers: dict[str, Any] = {}
        self.seen: list[tuple[str, str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.sessions: dict[str, dict[str, Any]] = {}
        self.messages: list[dict[str, Any]] = []
        self.jobs: dict[str, dict[str, Any]] = {}
        self.page = 100
        self.turn: Turn = quiet
        self._stirred: list[asyncio.Future[None]] = []

    def __enter__(self) -> Self:
        config = uvicorn.Config(
            Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET", "POST", "DELETE"])]),
            port=self.port,
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        self._server = Server(config)
        self._server.up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._server.up.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(10)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._server.serve()

    def _stop(self) -> None:
        self.cut()
        self._server.should_exit = True

    # --- what a test does -------------------------------------------------------------------------------------------

    def now(self, do: Callable[[], object]) -> None:
        """Does something on the server's own thread, from the test's."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (do(), done.set()))
        assert done.wait(10)

    async def until(self, condition: Callable[[], object]) -> None:
        """In a turn: waits until something that a client asked has made this true."""
        while not condition():
            self._stirred.append(asyncio.get_running_loop().create_future())
            await self._stirred[-1]

    async def looked(self) -> None:
        """In a turn: waits until the client has looked at the jobs once more."""
        before = len(self.asked("GET", "/api/background"))
        await self.until(lambda: len(self.asked("GET", "/api/background")) > before)

    async def heard(self) -> None:
        """In a turn: waits until somebody listens to the events."""
        await self.until(lambda: self.streams)

    def _stir(self) -> None:
        for waiter in self._stirred:
            if not waiter.done():
                waiter.set_result(None)
        self._stirred.clear()

    def emit(self, name: str, **data: Any) -> None:
        """An event to every open stream."""
        for stream in self.streams:
            stream.put_nowait(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())

    def cut(self) -> None:
        """Breaks every open stream."""
        for stream in self.streams:
            stream.put_nowait(None)
        self.streams.clear()

    def delta(self, task: str, text: str, attempt: int = 1) -> None:
        """A piece of an answer; a model that is asked again begins its text anew, in another attempt."""
        self.emit("turn.delta", session="s", task_id=task, attempt=attempt, text=text)

    def log(self, task: str, kind: str, text: str, state: str = "completed", **more: Any) -> None:
        """A message in the session's log; a turn's state stands on all of its messages."""
        for message in self.messages:
            if message["task_id"] == task:
                message["state"] = state
        role = "user" if kind == "user" else "agent"
        self.messages.append(
            {
                "id": len(self.messages) + 1,
                "role": role,
                "kind": kind,
                "text": text,
                "task_id": task,
                "state": state,
                "reason": None,
                "detail": None,
                "created_at": NOW,
                "job_ids": [],
            }
            | more
        )

    def finish(self, task: str, text: str, state: str = "completed", **more: Any) -> None:
        """The turn ends with this answer, and says so."""
        self.log(task, "agent", text, state, **more)
        self.emit("turn.finished", session="s", task_id=task, origin="user", state=state, reason=more.get("reason"))

    def set_job(self, job: dict[str, Any], event: str = "background.started") -> None:
        """A job's row is now this, and says so."""
        self.jobs[job["id"]] = job
        self.emit(event, **job)

    def asked(self, method: str, path: str) -> list[dict[str, Any]]:
        """The parameters or bodies of all such requests."""
        return [body for seen_method, seen_path, body in self.seen if (seen_method, seen_path) == (method, path)]

    # --- how it answers ---------------------------------------------------------------------------------------------

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        body = dict(request.query_params) if request.method == "GET" else json.loads(await request.body() or b"{}")
        self.seen.append((request.method, path, body))
        self.headers.append(dict(request.headers))
        self._stir()
        given = self.answers.get(f"{request.method} {path}")
        if callable(given) and not isinstance(given, Response):
            given = given(body)
        if given is not None:
            return given if isinstance(given, Response) else answer(given)
        return self._default(request.method, path.strip("/").split("/"), body)

    def _default(self, method: str, path: list[str], body: dict[str, Any]) -> Response:
        match method, path:
            case "GET", ["api", "events"]:
                return StreamingResponse(self._stream(), media_type="text/event-stream")
            case "POST", ["api", "sessions"]:
                session = {"id": body.get("id", "s")}
                self.sessions[session["id"]] = session
                return answer(session, 201)
            case "GET", ["api", "sessions", session] if session in self.sessions:
                return answer(self.sessions[session])
            case "GET", ["api", "sessions", _, "messages"]:
                return self._page("messages", self.messages, body)
            case "POST", ["api", "sessions", _, "messages"]:
                return self._take(body)
            case "GET", ["api", "background"]:
                return self._page("jobs", [*reversed(self.jobs.values())], body)
            case "GET", ["api", "background", id] if id in self.jobs:
                return answer(self.jobs[id])
        return error(404, "NOT_FOUND", "There is no such thing.")

    def _page(self, name: str, items: list[dict[str, Any]], body: dict[str, Any]) -> Response:
        start = int(body.get("cursor", 0))
        more = str(start + self.page) if start + self.page < len(items) else ""
        return answer({name: items[start : start + self.page], "next_cursor": more})

    def _take(self, body: dict[str, Any]) -> Response:
        task = f"task-{sum(message['kind'] == 'user' for message in self.messages) + 1}"
        self.log(task, "user", body["text"], "working")
        turn = asyncio.ensure_future(self.turn(self, task))
        self._tasks.add(turn)
        turn.add_done_callback(self._tasks.discard)
        return answer({"task_id": task}, 202)

    async def _stream(self) -> AsyncIterator[bytes]:
        heard: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.streams.append(heard)
        self._stir()
        yield b": hello\n\n"
        while (chunk := await heard.get()) is not None:
            yield chunk


async def quiet(server: Fake, task: str) -> None:
    """A turn that answers at once, without a piece before it."""
    server.finish(task, "ok")
