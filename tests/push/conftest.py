"""A server that may call loopback, one that may not, receivers, and Outriders inside the test's process whose clock moves."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.models import build_model
from tests.support.clock import Clock
from tests.support.inside import Inside, insides
from tests.support.receiver import Receiver
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.serving import Serving

OPEN = {"OUTRIDER_PROFILES": "chat,echo", "OUTRIDER_WEBHOOK_ALLOW": "127.0.0.1"}


@pytest.fixture(scope="package")
def serving(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("push"), shared_model.env | OPEN) as serving:
        yield serving


@pytest.fixture(scope="package")
def server(serving: Serving) -> Server:
    """The server of all tests that need no other settings: its webhooks may be on this machine."""
    return serving()


@pytest.fixture(scope="package")
def strict(serving: Serving) -> Server:
    """A server as it comes: nothing that is not public may be called."""
    return serving(OUTRIDER_WEBHOOK_ALLOW="")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that is up and says yes to everything, until a test says otherwise."""
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def inside(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., Inside]]:
    """Makes running Outriders inside this process, on the test's clock: `inside(webhook_keys="…")`."""
    with insides(tmp_path, build_model("offline"), clock, profiles="chat,echo", webhook_allow="127.0.0.1") as make:
        yield make
