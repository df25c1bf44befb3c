"""An Outrider inside the test's process, for what no process of its own can be made to do: move time, break a post, a store.

It runs on a thread with an event loop of its own and is reached over real HTTP, by the same words as a `Server`. It is
never killed here: crashes are real ones, of real processes.
"""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import uvicorn
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from starlette.types import ASGIApp, Receive, Scope, Send

from background.database import Clock as Now
from background.database import Tx
from background.worker import Handler
from knowledge.backend import Backend, Document, Hit
from tests.support.clock import Clock
from tests.support.server import Server
from web import settings
from web.app import Outrider

T = TypeVar("T")
Fault = Callable[[ASGIApp, Scope, Receive, Send], Awaitable[None]]


class Ticking(Clock):
    """A test clock on which nothing happens at the same moment: each look moves it by a millisecond."""

    def __call__(self) -> int:
        return self.advance(0.001)


class FaultyStore:
    """A knowledge store with something in the way: `before_put` and `before_search` are awaited first, and may raise."""

    def __init__(self, store: Backend) -> None:
        self._store = store
        self.before_put: Callable[[], Awaitable[None]] | None = None
        self.after_put: Callable[[], Awaitable[None]] | None = None
        self.before_search: Callable[[], Awaitable[None]] | None = None

    async def put(self, document: Document) -> int:
        if self.before_put:
            await self.before_put()
        stored = await self._store.put(document)
        if self.after_put:
            await self.after_put()
        return stored

    async def search(self, query: str, owner: str, **narrow: Any) -> list[Hit]:
        if self.before_search:
            await self.before_search()
        return await self._store.search(query, owner, **narrow)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Breakable(Outrider):
    """An Outrider whose posts to itself, store and handlers a test can get at."""

    post_fault: Fault | None = None
    around: Callable[[str, Handler], Handler] | None = None
    store: FaultyStore

    def _stack(self) -> ASGIApp:
        self.store = FaultyStore(self.house.knowledge)
        self.house.knowledge = self.store  # type: ignore[assignment]
        app = super()._stack()

        async def road(scope: Scope, receive: Receive, send: Send) -> None:
            ours = any(name == b"x-outrider-credential" for name, _ in scope["headers"])
            await (
                self.post_fault(app, scope, receive, send) if ours and self.post_fault else app(scope, receive, send)
            )

        return road

    def _handlers(self) -> dict[str, Handler]:
        made = super()._handlers()
        return {kind: self.around(kind, handler) for kind, handler in made.items()} if self.around else made


def openai_model(base_url: str) -> Model:
    """The model at this address, as the product would build it from its settings."""
    return OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=base_url, api_key="none"))


class Inside(Server):
    """`Inside(folder, model, clock, max_jobs=1)`: settings by their own names. Leases outlast what a test skips."""

    def __init__(self, data: Path, model: Model, now: Now, **more: Any) -> None:
        super().__init__(data)
        self._model, self._now = model, now
        options = {"data": str(data), "port": self.port, "lease_s": 3600, "worker_ttl_s": 86400} | more
        self.settings = settings.load(options, {})
        self.outrider: Breakable
        self.post_fault: Fault | None = None
        self.around: Callable[[str, Handler], Handler] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> Self:
        assert not self.running, "already running"
        up = threading.Event()
        self._failed = None
        self._thread = threading.Thread(target=self._run, args=(up,), name="outrider-inside")
        self._thread.start()
        up.wait(60)
        assert self._failed is None, self._failed
        return self

    def stop(self, timeout: float = 30) -> int:
        """As SIGTERM does: work is handed back."""
        assert self._thread
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout)
        assert not self.running and self._failed is None, self._failed
        return 0

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def close(self) -> None:
        if self.running:
            self.stop()
        self.http.close()

    def log(self) -> str:
        return "(inside the test's process; see the captured log)"

    # --- what only this one can do ----------------------------------------------------------------------------------

    def break_posts(self, fault: Fault | None) -> None:
        """From now on its posts to itself meet this, over restarts too; None mends them."""
        self.post_fault = fault
        if self.running:
            self.outrider.post_fault = fault

    def pass_time(self, seconds: float) -> None:
        """The test's clock moves, and whoever waits for a time looks at it."""
        assert isinstance(self._now, Clock)
        self._now.advance(seconds)
        self._loop.call_soon_threadsafe(self.outrider.house.db.bell.ring_all)

    def pass_pause(self, kind: str) -> None:
        """Waits until a run of this kind is to be tried again, and moves the clock to that time."""
        sql = "select due_at from runs where kind = :kind and state = 'queued' and due_at > :now"
        (row, *_) = self.wait(lambda: self.rows(sql, kind=kind, now=self._now()))
        self.pass_time((row["due_at"] - self._now()) / 1e6)

    def queue_again(self, *kinds: str) -> None:
        """What a crash between the work and its recording leaves behind: runs whose work is done, and that are queued."""

        def queued(tx: Tx) -> None:
            for kind in kinds:
                assert tx.x("update runs set state = 'queued', ended_at = null where kind = :kind", kind=kind)
            tx.ring("runs")

        self.write(queued)

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float = 20) -> T:
        """Runs a coroutine where the Outrider runs."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout)

    def write(self, function: Callable[..., T], *args: Any) -> T:
        """One transaction on the registry."""
        return self.call(self.outrider.house.db.write(function, *args))

    def rows(self, sql: str, **params: Any) -> list[dict[str, Any]]:
        """Rows as they are committed."""

        def read(tx: Tx) -> list[dict[str, Any]]:
            return [dict(row) for row in tx.q(sql, **params)]

        return self.call(self.outrider.house.db.read(read))

    # --- on its thread ----------------------------------------------------------------------------------------------

    def _run(self, up: threading.Event) -> None:
        try:
            asyncio.run(self._main(up))
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            self._failed = error
        finally:
            up.set()

    async def _main(self, up: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.outrider = Breakable(self.settings, self._model, self._now, serves=True, works=True)
        self.outrider.post_fault, self.outrider.around = self.post_fault, self.around
        async with self.outrider.running():
            config = uvicorn.Config(self.outrider.app, log_level="warning", access_log=False, lifespan="off", ws="none")
            server = uvicorn.Server(config)
            with socket.create_server(("127.0.0.1", self.port)) as listening:  # a client may knock from here on
                serving = asyncio.create_task(server.serve(sockets=[listening]))
                up.set()
                await self._stop.wait()
                await self.outrider.stop()
                server.should_exit = True
                await serving


@contextmanager
def insides(folder: Path, model: Model, now: Now, toml: str = "", **usual: object) -> Iterator[Callable[..., Inside]]:
    """Makes Outriders inside this process, with these settings unless it is told others, and closes them in the end.

    `make(max_jobs=1)` starts one on a data folder of its own that holds `toml`; `data`, `instead` (another model), `now`
    and `start=False` are for those that need them.
    """
    made: list[Inside] = []

    def make(
        data: Path | None = None,
        toml: str = toml,
        instead: Model | None = None,
        now: Now = now,
        start: bool = True,
        **settings: object,
    ) -> Inside:
        where = data or folder / f"inside-{len(made)}"
        where.mkdir(exist_ok=True)
        if toml:
            (where / "outrider.toml").write_text(toml)
        made.append(Inside(where, instead or model, now, **usual | settings))
        return made[-1].start() if start else made[-1]

    try:
        yield make
    finally:
        for outrider in made:
            outrider.close()
