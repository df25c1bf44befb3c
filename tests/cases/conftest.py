"""One scripted model and one real server a file, and Outriders inside the test's process for what needs a moved clock."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cases.stories import when_quiet
from tests.support.inside import Inside, Ticking, insides, openai_model
from tests.support.scripted import ScriptedModel
from tests.support.server import Server


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    """The file's model; each test begins by giving it its rules, which makes it forget what it was asked before."""
    with ScriptedModel() as scripted:
        yield scripted


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, model: ScriptedModel) -> Iterator[Callable[..., Server]]:
    """Makes real servers that live as long as the file's tests: `serving(OUTRIDER_MAX_JOBS="1")`."""
    started: list[Server] = []

    def make(**env: str) -> Server:
        started.append(Server(tmp_path_factory.mktemp("case") / "data", env=model.env | env))
        return started[-1].start()

    yield make
    for server in started:
        server.close()


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, serving: Callable[..., Server]) -> Server:
    """The file's server, with the file's `SETTINGS`. Its tests share it, each with sessions of its own."""
    return serving(**getattr(request.module, "SETTINGS", {}))


@pytest.fixture(autouse=True)
def calm(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves work behind that the next one on the same server would meet."""
    yield
    if "server" in request.fixturenames and not request.session.testsfailed:
        when_quiet(request.getfixturevalue("server"))


@pytest.fixture
def clock() -> Ticking:
    """Time that moves by itself only as far as to keep things in order."""
    return Ticking()


@pytest.fixture
def inside(tmp_path: Path, model: ScriptedModel, clock: Ticking) -> Iterator[Callable[..., Inside]]:
    """Makes Outriders inside this process, on the test's clock: `inside(max_jobs=1)`."""
    with insides(tmp_path, openai_model(model.base_url), clock) as make:
        yield make
