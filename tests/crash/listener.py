"""An A2A client that watches one task to its end: whenever its stream ends before the task does, it subscribes again.

It keeps all that it was told, a list of frames each time it came in, and judges nothing.
"""

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx

from tests.support.server import ENDED

PAUSE_S = 0.02
Frames = list[dict[str, Any]]


class Listener(threading.Thread):
    """Begins at once, and is done when the task has ended. `heard`: the frames of each subscription that brought any."""

    def __init__(self, url: str, task_id: str) -> None:
        super().__init__(name=f"listener to {task_id}")
        self.heard: list[Frames] = []
        self._url, self._task_id = url, task_id
        self._leaves = threading.Event()
        self.start()

    def run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=20, trust_env=False) as client:
            while not self._leaves.is_set() and not self._over(client):
                self._leaves.wait(PAUSE_S)

    def leave(self) -> None:
        """It does not come in again. Only once its server is gone: before that a stream may last."""
        self._leaves.set()
        self.join(20)

    def _over(self, client: httpx.Client) -> bool:
        """One subscription, to its end; whether the task has ended."""
        frames: Frames = []
        try:
            for frame in _subscribed(client, self._task_id):
                if "error" in frame:
                    return frame["error"]["data"][0]["reason"] in ("UNSUPPORTED_OPERATION", "TASK_NOT_FOUND")
                if not frames:
                    self.heard.append(frames)
                frames.append(frame["result"])
        except httpx.TransportError:  # its server has died, or is not there yet
            return False
        return bool(frames) and state_of(frames[-1]) in ENDED


def _subscribed(client: httpx.Client, task_id: str) -> Iterator[dict[str, Any]]:
    """The envelopes that come, or the one of an error."""
    request = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
    with client.stream("POST", "/a2a", json=request, headers={"A2A-Version": "1.0"}) as response:
        if not response.headers["content-type"].startswith("text/event-stream"):
            yield json.loads(response.read())
            return
        for line in response.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


def state_of(frame: dict[str, Any]) -> str:
    """The state that a frame tells; nothing for an artifact."""
    told = frame.get("task") or frame.get("statusUpdate") or {}
    return told.get("status", {}).get("state", "")
