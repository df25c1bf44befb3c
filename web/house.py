"""What the doors share: the stores, the settings, and the bounds that a process keeps while it serves.

A value that is handed around; it starts and stops nothing (`web/app.py` does) and knows no route.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from agent.subagents import Registry
from background.database import Database
from knowledge.store import Store
from web.a2a_errors import A2AError
from web.access import Credentials
from web.settings import Settings

STOPPING = "This server is stopping; send it again to the next one."


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
        self._listeners: set[Callable[[str, dict[str, str]], None]] = set()

    def publish(self, owner: str, data: dict[str, str]) -> None:
        for listener in tuple(self._listeners):
            listener(owner, data)

    @contextmanager
    def heard_by(self, listener: Callable[[str, dict[str, str]], None]) -> Iterator[None]:
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)


@dataclass
class House:
    """All that a request may need. `stopping` is set by SIGTERM: from then on nothing new is taken."""

    settings: Settings
    db: Database
    knowledge: Store
    registry: Registry
    credentials: Credentials
    deltas: Deltas = field(default_factory=Deltas)
    stopping: bool = False

    def __post_init__(self) -> None:
        self.waiting = Capacity(
            self.settings.max_waiting_requests, "WAITING_LIMIT_REACHED", "OUTRIDER_MAX_WAITING_REQUESTS"
        )
        self.streams = Streams(self.settings)

    def require_open(self) -> None:
        """Raises `WORKER_UNAVAILABLE` once the process is stopping."""
        if self.stopping:
            raise A2AError("WORKER_UNAVAILABLE", STOPPING)


class Streams:
    """Open A2A streams: in all, for each task, for each user."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._all = self._capacity("max_streams")
        self._kept: dict[tuple[str, str], Capacity] = {}

    def _capacity(self, setting: str) -> Capacity:
        return Capacity(getattr(self._settings, setting), "STREAM_LIMIT_REACHED", f"OUTRIDER_{setting.upper()}")

    @contextmanager
    def place(self, owner: str, task_id: str) -> Iterator[None]:
        """A place for one stream. Raises `STREAM_LIMIT_REACHED` naming which limit it is."""
        keys = {("max_streams_per_user", owner), ("max_streams_per_task", task_id)}
        user, task = (self._kept.setdefault(key, self._capacity(key[0])) for key in sorted(keys, reverse=True))
        try:
            with self._all.place(), user.place(), task.place():
                yield
        finally:
            for key in keys:
                if key in self._kept and not self._kept[key].taken:
                    del self._kept[key]

    @property
    def open(self) -> int:
        return self._all.taken
