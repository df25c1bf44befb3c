"""What the doors share: the stores, the settings, and the bounds that a process keeps while it serves.

A value that is handed around; it starts and stops nothing (`web/app.py` does) and knows no route.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from agent import addresses
from agent.addresses import Allowed, Resolve
from agent.ingest import Sources
from agent.mcp import Servers
from agent.offers import Offer
from agent.plugins import Plugins
from agent.subagents import Registry
from background.database import Database
from knowledge.backend import Backend
from web.a2a_errors import A2AError
from web.callers import Callers
from web.credentials import Credentials
from web.setting_fields import Settings

UNTOLD = (
    "OUTRIDER_PUBLIC_URL is not set, and it listens on every address: the agent card says the address that it was asked at, "
    "which clients elsewhere may not reach."
)
STOPPING = "This server is stopping; send it again to the next one."


Delta = dict[str, Any]  # session, task_id, origin, trigger, attempt, text


class Capacity:
    """So many at once, and one more is refused with `reason` and the setting's name."""

    def __init__(self, limit: int, reason: str, setting: str) -> None:
        self.limit, self.reason, self.setting = limit, reason, setting
        self.taken = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        if self.taken >= self.limit:
            raise A2AError(self.reason, metadata={"limit": self.setting})
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1


class Deltas:
    """Pieces of text as they come, for the consoles that are connected to this process. Nobody waits for a slow one."""

    def __init__(self) -> None:
        self._listeners: set[Callable[[str, Delta], None]] = set()

    def publish(self, owner: str, data: Delta) -> None:
        for listener in tuple(self._listeners):
            listener(owner, data)

    @contextmanager
    def heard_by(self, listener: Callable[[str, Delta], None]) -> Iterator[None]:
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)


@dataclass
class House:
    """All that a request may need. `stopping` is set by SIGTERM: from then on nothing new is taken;
    `closed` when the work has been finished or handed back: whoever still waits or watches is told so."""

    settings: Settings
    db: Database
    knowledge: Backend
    registry: Registry
    credentials: Credentials
    callers: Callers
    offers: Mapping[str, Offer]
    plugins: Plugins
    servers: Servers = field(default_factory=Servers)
    deltas: Deltas = field(default_factory=Deltas)
    resolve: Resolve = addresses.resolve
    sources: Sources = Sources()  # noqa: RUF009 - frozen
    stopping: bool = False
    closed: bool = False

    def __post_init__(self) -> None:
        self.waiting = Capacity(
            self.settings.max_waiting_requests, "WAITING_LIMIT_REACHED", "OUTRIDER_MAX_WAITING_REQUESTS"
        )
        self.streams = Streams(self.settings)
        self.webhooks_allowed = Allowed.of(self.settings.webhook_allow)
        self.waits = Waits(self.settings.blocking_wait_s)

    @property
    def offered(self) -> list[Offer]:
        """The profiles that a client may ask for, made ready."""
        return [self.offers[name] for name in self.settings.profiles]

    @property
    def flaws(self) -> list[str]:
        """What does not work here while the rest does: broken plugins, profiles that take no work, MCP servers that are not
        there, an address that is guessed."""
        offers = (offer.problem for offer in self.offered if offer.problem)
        return [*self.plugins.problems, *offers, *self.servers.problems, *([UNTOLD] if self.settings.guessed else [])]

    def require_open(self) -> None:
        """Raises `WORKER_UNAVAILABLE` once the process is stopping."""
        if self.stopping:
            raise A2AError("WORKER_UNAVAILABLE", STOPPING)


class Waits:
    """How the last blocking sends ended: answered, or cut off by a client or by a proxy between."""

    LOOKED_AT = 20
    MANY = 5

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._cut_after: deque[float | None] = deque(maxlen=self.LOOKED_AT)

    def ended(self, cut_after_s: float | None) -> None:
        """One more wait is over; None for one that was not cut off."""
        self._cut_after.append(cut_after_s)

    @property
    def warning(self) -> str | None:
        """What an operator should know of it: a proxy that is less patient than this server shows here."""
        cut = [seconds for seconds in self._cut_after if seconds is not None]
        if len(cut) < self.MANY:
            return None
        return (
            f"{len(cut)} of the last {len(self._cut_after)} blocking sends were cut off, half of them within "
            f"{median(cut):.1f} s: is a proxy's read timeout shorter than OUTRIDER_BLOCKING_WAIT_S ({self._deadline_s:g} s)?"
        )


class Streams:
    """Open A2A streams: in all, for each task, for each user."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._all = self._capacity("max_streams")
        self._kept: dict[tuple[str, str], Capacity] = {}

    def _capacity(self, setting: str) -> Capacity:
        return Capacity(getattr(self._settings, setting), "STREAM_LIMIT_REACHED", f"OUTRIDER_{setting.upper()}")

    @contextmanager
    def of_user(self, owner: str) -> Iterator[None]:
        """A place among all streams and those of a user. Raises `STREAM_LIMIT_REACHED` naming which limit it is."""
        with self._all.place(), self._place("max_streams_per_user", owner):
            yield

    def of_task(self, task_id: str) -> AbstractContextManager[None]:
        """A place among the streams of a task, beside that of its user. Raises like `of_user`."""
        return self._place("max_streams_per_task", task_id)

    @contextmanager
    def _place(self, setting: str, of: str) -> Iterator[None]:
        capacity = self._kept.setdefault((setting, of), self._capacity(setting))
        try:
            with capacity.place():
                yield
        finally:
            if not capacity.taken:
                self._kept.pop((setting, of), None)

    @property
    def open(self) -> int:
        return self._all.taken
