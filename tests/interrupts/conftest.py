"""One server whose plugin asks, needs approvals and can be stopped; and servers that may be killed, two on one folder too."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.inside import Inside, Ticking, insides, openai_model
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.serving import Serving
from tests.support.trial import PROFILES as TRIALS
from tests.support.trial import Trial

PROFILES = """
[profiles.asker]
description = "May ask its user."
tools = ["ask_user", "pay", "shout", "double", "dwell", "linger", "task", "memory_recall"]

[profiles.short]
description = "Takes a short text."
handler = "trial"

[profiles.short.input_schema]
type = "object"
required = ["run"]
properties.run = { type = "string", maxLength = 40 }
"""
OFFERED = "chat,asker,trial,trial-sync,echo,short"


@pytest.fixture(scope="package")
def shared_trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("trial"))


@pytest.fixture
def trial(shared_trial: Trial) -> Trial:
    """Doors and diary of the plugin, the diary empty."""
    (shared_trial.folder / "diary").unlink(missing_ok=True)
    return shared_trial


@pytest.fixture(scope="package")
def serving(
    shared_model: ScriptedModel, shared_trial: Trial, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    env = shared_model.env | shared_trial.env(OFFERED)
    with Serving(tmp_path_factory.mktemp("asks"), env, TRIALS + PROFILES) as serving:
        yield serving


@pytest.fixture(scope="package")
def server(serving: Serving) -> Server:
    """The server of all tests that change none of its settings and do not end it."""
    return serving()


@pytest.fixture
def own(serving: Serving, trial: Trial, tmp_path: Path) -> Iterator[Serving]:
    """Makes servers for one test, whose plugin's diary is empty."""
    with serving.at(tmp_path) as own:
        yield own


@pytest.fixture
def clock() -> Ticking:
    """Time that moves by itself only as far as to keep things in order."""
    return Ticking()


@pytest.fixture
def inside(
    model: ScriptedModel, trial: Trial, clock: Ticking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Inside]]:
    """Makes Outriders inside this process, on the test's clock, with the plugin: `inside(job_timeout_s=60)`."""
    monkeypatch.syspath_prepend(trial.env()["PYTHONPATH"])
    monkeypatch.setenv("TRIAL_FOLDER", str(trial.folder))
    with insides(tmp_path, openai_model(model.base_url), clock, TRIALS + PROFILES, profiles=OFFERED) as make:
        yield make
