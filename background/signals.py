"""The bell: waking whoever listens for a topic, in this process. It carries nothing that decides anything.

A ring may be lost, doubled or late; what matters is in the rows, and everybody who listens also looks by himself.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Ear:
    """One listener. A ring between two waits is kept, so that nothing falls between looking and waiting."""

    def __init__(self) -> None:
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def hear(self) -> None:
        self._rung = True
        self.wake()

    def wake(self) -> None:
        """End a wait as if its time were over."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, timeout: float | None = None) -> bool:
        """Until there was a ring since the last wait; False when `timeout` seconds passed without one."""
        if not self._rung:
            # By hand, because every message waits: an event inside a timeout costs twice as much.
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = None if timeout is None else loop.call_later(timeout, self.wake)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        rung, self._rung = self._rung, False
        return rung


class Bell:
    """Topics and who listens to them. On the event loop's thread only."""

    def __init__(self) -> None:
        self._ears: dict[str, set[Ear]] = defaultdict(set)

    @contextmanager
    def listen(self, *topics: str) -> Iterator[Ear]:
        """An ear for `topics`, for the time of the block."""
        ear = Ear()
        for topic in topics:
            self._ears[topic].add(ear)
        try:
            yield ear
        finally:
            for topic in topics:
                self._ears[topic].discard(ear)
                if not self._ears[topic]:
                    del self._ears[topic]

    def ring(self, topic: str) -> None:
        for ear in self._ears.get(topic, ()):
            ear.hear()

    def ring_all(self) -> None:
        """Another process has committed something, and nobody knows what."""
        for topic in self._ears:
            self.ring(topic)
