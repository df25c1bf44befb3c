"""One server for all that steer its turns; a model that says what a test scripts."""

from collections.abc import Iterator

import pytest

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
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("trial"))


@pytest.fixture(scope="package")
def server(shared_model: ScriptedModel, trial: Trial, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of all tests that do not end it."""
    data = trial.data(tmp_path_factory.mktemp("steered") / "data", PROFILES)
    with Server(data, env=shared_model.env | trial.env(OFFERED)) as server:
        yield server
