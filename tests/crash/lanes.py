"""Stories told side by side: each lane takes the next plan when it is free.

A story that broke keeps its folder, and says how it is told again; of the others nothing stays.
"""

import itertools
import json
import os
import queue
import shutil
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.crash.plan import Calm, Plan
from tests.crash.promises import broken
from tests.crash.story import Lane, Story
from tests.support.life import Cradle
from tests.support.scripted import ScriptedModel

LANES = 1 + (os.cpu_count() or 2)  # a story waits about as much as it works


@dataclass
class Told:
    """How a story went. `calm` is what it committed, for making plans when nobody was killed."""

    plan: Plan
    deaths: list[str]
    seconds: float
    broken: list[str]
    calm: Calm
    folder: Path

    def __str__(self) -> str:
        again = f"make crash N=5 ARGS='-k is_killed --kill \"{self.plan}\"'"
        return "\n".join([*self.broken, f"killed: {self.deaths}", f"what is left: {self.folder}", f"again: {again}"])


class Lanes:
    """`tell` hands in a plan. Close it: what has not begun by then never does."""

    def __init__(self, cradle: Cradle, count: int = LANES) -> None:
        # Not one of the test run's own folders: those are cleared away by the runs that follow.
        self._folder = Path(tempfile.mkdtemp(prefix="outrider-crash-"))
        self._numbers = itertools.count(1)
        self._pool = ThreadPoolExecutor(count)
        self._free: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        self._stack = ExitStack()
        for _ in range(count):
            self._free.put(self._stack.enter_context(Lane.open(cradle)))

    def tell(self, plan: Plan) -> Future[Told]:
        return self._pool.submit(self._tell, plan)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._stack.close()
        if not any(self._folder.iterdir()):
            self._folder.rmdir()

    def _tell(self, plan: Plan) -> Told:
        lane = self._free.get()
        try:
            return told(lane, self._folder / f"story-{next(self._numbers)}", plan)
        finally:
            self._free.put(lane)


def told(lane: Lane, folder: Path, plan: Plan) -> Told:
    """A story told in a new folder, and what it broke."""
    folder.mkdir()
    story = Story.make(lane, folder / "data")
    try:
        found = broken(story.tell(plan), story.server.data)
    except AssertionError as error:
        found = [str(error)]
    finally:
        story.close()
    outcome = Told(plan, story.deaths, story.seconds, found, story.calm(), folder)
    if found:
        _keep(folder, lane.model)
    else:
        shutil.rmtree(folder)
    return outcome


def _keep(folder: Path, model: ScriptedModel) -> None:
    """What the model was asked, beside the server's files, log and diary."""
    with (folder / "asked.jsonl").open("w") as file:
        for asked in model.requests():
            file.write(json.dumps(asked.messages, ensure_ascii=False) + "\n")
