"""One server for all that steer its turns; a model that says what a test scripts."""

from collections.abc import Iterator

import pytest

from tests.steering.turns import asking
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.trial import Trial

PROFILES = """
[profiles.asker]
description = "May ask its user."
tools = ["ask_user", "shout", "dwell", "memory_recall"]
"""
OFFERED = "chat,asker,trial,echo"


@pytest.fixture(scope="package")
def shared_model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture
def model(shared_model: ScriptedModel) -> Iterator[ScriptedModel]:
    """The model of all servers here, with nothing scripted yet; what a test left at its gates goes on."""
    shared_model.rules([])
    yield shared_model
    shared_model.rules([])


@pytest.fixture(scope="package")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("trial"))


@pytest.fixture(scope="package")
def server(shared_model: ScriptedModel, trial: Trial, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of all tests that do not end it."""
    data = trial.data(tmp_path_factory.mktemp("steered") / "data", PROFILES)
    with Server(data, env=asking(shared_model) | trial.env(OFFERED)) as server:
        yield server
