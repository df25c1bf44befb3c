"""A server that may call loopback, one that may not, receivers, and Outriders inside the test's process whose clock moves."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.models import build_model
from tests.cases.inside import Inside
from tests.support.clock import Clock
from tests.support.receiver import Receiver
from tests.support.scripted import ScriptedModel
from tests.support.server import Process, Server

OPEN = {"OUTRIDER_PROFILES": "chat,echo", "OUTRIDER_WEBHOOK_ALLOW": "127.0.0.1"}


def asking(model: ScriptedModel) -> dict[str, str]:
    """The settings by which a server asks this model."""
    return {"OUTRIDER_MODEL": "openai-chat:scripted", "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "none"}


@pytest.fixture(scope="package")
def shared_model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture
def model(shared_model: ScriptedModel) -> Iterator[ScriptedModel]:
    """The model of the shared server, with nothing scripted yet; what a test left at its gates goes on."""
    shared_model.rules([])
    yield shared_model
    shared_model.rules([])


@pytest.fixture(scope="package")
def server(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of all tests that need no other settings: its webhooks may be on this machine."""
    with Server(tmp_path_factory.mktemp("push") / "data", env=asking(shared_model) | OPEN) as server:
        yield server


@pytest.fixture(scope="package")
def strict(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server as it comes: nothing that is not public may be called."""
    env = asking(shared_model) | OPEN | {"OUTRIDER_WEBHOOK_ALLOW": ""}
    with Server(tmp_path_factory.mktemp("strict") / "data", env=env) as server:
        yield server


@pytest.fixture
def own(shared_model: ScriptedModel, tmp_path: Path, processes: list[Process]) -> Callable[..., Server]:
    """Makes a server with settings of its own: `own("--no-worker", OUTRIDER_PUSH="false")`."""

    def make(*options: str, **env: str) -> Server:
        server = Server(tmp_path / f"own-{len(processes)}", *options, env=asking(shared_model) | OPEN | env)
        processes.append(server)
        return server.start()

    return make


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that is up and says yes to everything, until a test says otherwise."""
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def inside(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., Inside]]:
    """Makes running Outriders inside this process, on the test's clock: `inside(webhook_keys="…")`."""
    made: list[Inside] = []

    def make(**settings: object) -> Inside:
        wanted = {"profiles": "chat,echo", "webhook_allow": "127.0.0.1"} | settings
        made.append(Inside(tmp_path / f"inside-{len(made)}", build_model("offline"), clock, **wanted))
        return made[-1].start()

    yield make
    for outrider in made:
        outrider.close()
