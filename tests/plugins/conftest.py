"""One server with the trial plugin, which may have five jobs of a user's waiting; one job is worked on at a time."""

from collections.abc import Iterator

import pytest

from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.serving import Serving
from tests.support.trial import PROFILES, Trial

QUOTA = """
[plugins.trial]
max_queued_jobs = 5
"""


@pytest.fixture(scope="package")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """The doors and the diary of the shared server's plugin."""
    return Trial(tmp_path_factory.mktemp("trial"))


@pytest.fixture(scope="package")
def serving(shared_model: ScriptedModel, trial: Trial, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    env = shared_model.env | trial.env("chat,trial,trial-sync") | {"OUTRIDER_MAX_JOBS": "1"}
    with Serving(tmp_path_factory.mktemp("plugins"), env, PROFILES + QUOTA) as serving:
        yield serving


@pytest.fixture(scope="package")
def server(serving: Serving) -> Server:
    """The server of all tests that change none of its settings; its plugin has a thread that waits for a door."""
    return serving(TRIAL="thread,sender")
