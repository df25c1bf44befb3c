"""One running server for all promises of the API that do not need one of their own, and a model that a test scripts."""

from collections.abc import Iterator

import pytest

from tests.support.scripted import ScriptedModel
from tests.support.server import Server

ROOM = {"OUTRIDER_PROFILES": "chat,echo", "OUTRIDER_MAX_QUEUED_JOBS": "8"}


@pytest.fixture(scope="package")
def api_model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture(scope="package")
def api(api_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of all API tests; eight jobs may wait. Its model is `model`."""
    asking = {
        "OUTRIDER_MODEL": "openai-chat:scripted",
        "OPENAI_BASE_URL": api_model.base_url,
        "OPENAI_API_KEY": "none",
    }
    with Server(tmp_path_factory.mktemp("api") / "data", env=asking | ROOM) as server:
        yield server


@pytest.fixture
def model(api_model: ScriptedModel) -> Iterator[ScriptedModel]:
    """The model of `api`, with nothing scripted yet; what a test left at its gates goes on."""
    api_model.rules([])
    yield api_model
    api_model.rules([])
