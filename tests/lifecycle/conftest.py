"""One scripted model and one real server for all stories that need no other settings, and Outriders whose clock moves."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cases.inside import Inside, Ticking, openai_model
from tests.support.scripted import ScriptedModel
from tests.support.server import Process, Server

NUMBERS = itertools.count(1)
SETTINGS = {"OUTRIDER_MAX_JOBS": "1", "OUTRIDER_PROFILES": "chat,echo,asking", "OUTRIDER_WEBHOOK_ALLOW": "127.0.0.1"}
ASKING = '[profiles.asking]\nhandler = "agent"\ntools = ["ask_user"]\n'


def asking(model: ScriptedModel) -> dict[str, str]:
    """The settings by which a server asks this model."""
    return {"OUTRIDER_MODEL": "openai-chat:scripted", "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "none"}


@pytest.fixture(scope="package")
def shared_model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture
def model(shared_model: ScriptedModel) -> Iterator[ScriptedModel]:
    """The model of the servers, with nothing scripted yet; what a test left at its gates goes on."""
    shared_model.rules([])
    yield shared_model
    shared_model.rules([])


@pytest.fixture(scope="package")
def server(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all: one job at a time, and a profile `asking` that may ask its user."""
    with _server(tmp_path_factory.mktemp("lifecycle") / "data", shared_model) as server:
        yield server


@pytest.fixture
def own(shared_model: ScriptedModel, tmp_path: Path, processes: list[Process]) -> Callable[..., Server]:
    """Makes a server of the same settings with a data folder of its own: `own("--no-worker", OUTRIDER_LEASE_S="2")`."""

    def make(*options: str, data: Path | None = None, start: bool = True, **env: str) -> Server:
        made = _server(data or tmp_path / f"own-{len(processes)}", shared_model, *options, **env)
        processes.append(made)
        return made.start() if start else made

    return make


def _server(data: Path, model: ScriptedModel, *options: str, **env: str) -> Server:
    data.mkdir(parents=True, exist_ok=True)
    (data / "outrider.toml").write_text(ASKING)
    return Server(data, *options, env=asking(model) | SETTINGS | env)


@pytest.fixture
def clock() -> Ticking:
    """Time that moves by itself only as far as to keep things in order."""
    return Ticking()


@pytest.fixture
def inside(tmp_path: Path, model: ScriptedModel, clock: Ticking) -> Iterator[Callable[..., Inside]]:
    """Makes running Outriders inside this process, on the test's clock: `inside(retention_days=1)`."""
    made: list[Inside] = []

    def make(toml: str = "", **settings: object) -> Inside:
        data = tmp_path / f"inside-{len(made)}"
        data.mkdir()
        (data / "outrider.toml").write_text(toml or ASKING)
        wanted = {"profiles": "chat,echo", "webhook_allow": "127.0.0.1"} | settings
        made.append(Inside(data, openai_model(model.base_url), clock, **wanted))
        return made[-1].start()

    yield make
    for outrider in made:
        outrider.close()


@pytest.fixture
def word() -> str:
    """A word that stands nowhere before this test says it."""
    return f"canary{next(NUMBERS):04}zq"


@pytest.fixture
def session() -> str:
    """A session's id that no other test uses."""
    return f"s-{next(NUMBERS)}"
