"""One scripted model and one real server for all that needs no other settings."""

from collections.abc import Iterator

import pytest

from tests.support.scripted import ScriptedModel
from tests.support.server import Server

# What it has for these tests: a lease that a restored server need not wait long for, and receivers on loopback.
OWN = {"OUTRIDER_LEASE_S": "3", "OUTRIDER_WEBHOOK_ALLOW": "127.0.0.1"}


def asking(model: ScriptedModel) -> dict[str, str]:
    """The settings by which a server asks this model."""
    return {"OUTRIDER_MODEL": "openai-chat:scripted", "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "none"}


@pytest.fixture(scope="package")
def shared_model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture
def model(shared_model: ScriptedModel) -> Iterator[ScriptedModel]:
    """The model of the server, with nothing scripted yet; what a test left at its gates goes on."""
    shared_model.rules([])
    yield shared_model
    shared_model.rules([])


@pytest.fixture(scope="package")
def server(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of all tests here."""
    with Server(tmp_path_factory.mktemp("operating") / "data", env=asking(shared_model) | OWN) as server:
        yield server
