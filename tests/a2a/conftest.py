"""One running server for all promises that do not need one of their own, and a model that says what a test scripts."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.a2a.over_grpc import served
from tests.support.scripted import ScriptedModel
from tests.support.server import Process, Server

PROFILES = {"OUTRIDER_PROFILES": "chat,echo"}


def asking(model: ScriptedModel) -> dict[str, str]:
    """The settings by which a server asks this model."""
    return {
        "OUTRIDER_MODEL": "openai-chat:scripted",
        "OPENAI_BASE_URL": model.base_url,
        "OPENAI_API_KEY": "none",
        **PROFILES,
    }


@pytest.fixture(scope="package")
def shared_model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture(scope="package")
def shared(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of all tests that change none of its settings and do not end it."""
    with Server(tmp_path_factory.mktemp("a2a") / "data", env=asking(shared_model) | served()) as server:
        yield server


@pytest.fixture(scope="package")
def tight(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that has room for little: 2 waiting requests, 3 open tasks, 2 streams of a user, 1 of a task."""
    room = {
        "OUTRIDER_MAX_WAITING_REQUESTS": "2",
        "OUTRIDER_MAX_OPEN_TASKS_PER_USER": "3",
        "OUTRIDER_MAX_STREAMS_PER_USER": "2",
        "OUTRIDER_MAX_STREAMS_PER_TASK": "1",
    }
    with Server(tmp_path_factory.mktemp("tight") / "data", env=asking(shared_model) | room) as server:
        yield server


@pytest.fixture(scope="package")
def impatient(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that waits for 1 s at most, with one stream, of half a second; tests may start it anew."""
    limits = {"OUTRIDER_BLOCKING_WAIT_S": "1", "OUTRIDER_STREAM_MAX_S": "0.5", "OUTRIDER_MAX_STREAMS": "1"}
    with Server(tmp_path_factory.mktemp("impatient") / "data", env=asking(shared_model) | limits | served()) as server:
        yield server


@pytest.fixture
def model(shared_model: ScriptedModel) -> Iterator[ScriptedModel]:
    """The model of the shared server, with nothing scripted yet; what a test left at its gates goes on."""
    shared_model.rules([])
    yield shared_model
    shared_model.rules([])


@pytest.fixture
def own(shared_model: ScriptedModel, tmp_path: Path, processes: list[Process]) -> Callable[..., Server]:
    """Makes a server with settings of its own, which asks the same model: `own("--no-worker", OUTRIDER_MAX_JOBS="1")`."""

    def make(*options: str, **env: str) -> Server:
        server = Server(tmp_path / f"own-{len(processes)}", *options, env=asking(shared_model) | env)
        processes.append(server)
        return server.start()

    return make
