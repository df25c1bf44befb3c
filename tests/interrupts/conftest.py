"""One server whose plugin asks, needs approvals and can be stopped; and servers that may be killed, two on one folder too."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cases.inside import Inside, Ticking, openai_model
from tests.support.scripted import ScriptedModel
from tests.support.server import Process, Server
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


def asking(model: ScriptedModel) -> dict[str, str]:
    """The settings by which a server asks this model."""
    return {"OUTRIDER_MODEL": "openai-chat:scripted", "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "none"}


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
def shared_trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("trial"))


@pytest.fixture
def trial(shared_trial: Trial) -> Trial:
    """Doors and diary of the plugin, the diary empty."""
    (shared_trial.folder / "diary").unlink(missing_ok=True)
    return shared_trial


@pytest.fixture(scope="package")
def server(
    shared_model: ScriptedModel, shared_trial: Trial, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """The server of all tests that change none of its settings and do not end it."""
    data = shared_trial.data(tmp_path_factory.mktemp("asks") / "data", PROFILES)
    with Server(data, env=asking(shared_model) | shared_trial.env(OFFERED)) as server:
        yield server


@pytest.fixture
def own(shared_model: ScriptedModel, trial: Trial, tmp_path: Path, processes: list[Process]) -> Callable[..., Server]:
    """Makes a server of a test's own, on a folder of its own or on another's: `own(data=first.data, OUTRIDER_LEASE_S="1")`."""

    def make(*options: str, data: Path | None = None, **env: str) -> Server:
        folder = data or trial.data(tmp_path / f"own-{len(processes)}", PROFILES)
        processes.append(server := Server(folder, *options, env=asking(shared_model) | trial.env(OFFERED) | env))
        return server.start()

    return make


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
    made: list[Inside] = []

    def make(**settings: object) -> Inside:
        data = trial.data(tmp_path / f"inside-{len(made)}", PROFILES)
        made.append(Inside(data, openai_model(model.base_url), clock, profiles=OFFERED, **settings))
        return made[-1].start()

    yield make
    for outrider in made:
        outrider.close()
