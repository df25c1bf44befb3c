"""F178, F075: that a thing is another's cannot be told from that it is not there by how long the answer takes."""

import random
import time
from collections.abc import Callable
from math import sqrt
from typing import Any

import pytest

from tests.access.people import Person
from tests.support.server import Server

PAIRS = 1000
# So far from an even split of the pairs chance comes once in 16,000; and it must do so three times, on the same side.
FAR = 4.0
ROUNDS = 3
UNKNOWN = {"task": "0197e2a0-0000-7000-8000-000000000000", "job": "bg-000000000000", "session": "nobodys"}


def rpc(method: str, **params: Any) -> Callable[[Person, dict[str, str]], None]:
    return lambda bob, of: _done(bob.rpc(method, {name: of[field] for name, field in params.items()}))


def get(path: str) -> Callable[[Person, dict[str, str]], None]:
    return lambda bob, of: _done(bob.get(path.format(**of)))


def _done(_: object) -> None:
    """The answer has come whole, and that is all that is asked."""


ASKED = {
    "GetTask": rpc("GetTask", id="task"),
    "CancelTask": rpc("CancelTask", id="task"),
    "ListTasks": rpc("ListTasks", contextId="session"),
    "webhooks": rpc("ListTaskPushNotificationConfigs", taskId="task"),
    "job": get("/api/background/{job}"),
    "report": get("/api/background/{job}/report"),
    "session": get("/api/sessions/{session}/messages"),
    "shares": get("/api/sessions/{session}/shares"),
}


def imbalance(ask: Callable[[dict[str, str]], None], foreign: dict[str, str], chance: random.Random) -> float:
    """By how many standard deviations the pairs in which another's took longer differ from half of all.

    Both of a pair are asked right after each other, in an order drawn by lot: what else the machine does meets both alike.
    """
    longer = 0
    for _ in range(PAIRS):
        pair = [(foreign, True), (UNKNOWN, False)]
        chance.shuffle(pair)
        took = {}
        for things, is_foreign in pair:
            began = time.perf_counter_ns()
            ask(things)
            took[is_foreign] = time.perf_counter_ns() - began
        longer += took[True] > took[False]
    return (longer - PAIRS / 2) / sqrt(PAIRS / 4)


@pytest.fixture(scope="module")
def foreign(guarded: Server, alice: Person) -> dict[str, str]:
    """What is Alice's, and is there: with a history and a report of some length."""
    task = alice.echoed("timed", "x" * 50_000, "timed")["id"]
    job = alice.post("/api/background", session="timed", prompt="look into owls", description="owls").json()["id"]
    guarded.wait(lambda: alice.get(f"/api/background/{job}").json()["notified"])
    return {"task": task, "job": job, "session": "timed"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ASKED)
def test_f178_another_s_takes_as_long_as_none(foreign: dict[str, str], bob: Person, name: str) -> None:
    chance = random.Random(name)
    found: list[float] = []
    for _ in range(ROUNDS):
        found.append(imbalance(lambda things: ASKED[name](bob, things), foreign, chance))
        if abs(found[-1]) < FAR:
            return
    assert min(found) < 0 < max(found), f"{name}: another's takes {found} standard deviations longer"


@pytest.mark.slow
def test_the_measure_finds_a_difference_where_there_is_one(foreign: dict[str, str], alice: Person) -> None:
    """Her own task, which is read, against one that is not there."""
    found = imbalance(lambda things: ASKED["GetTask"](alice, things), foreign, random.Random(1))
    assert found > 2 * FAR
