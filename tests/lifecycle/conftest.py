"""One scripted model and one real server for all stories that need no other settings, and Outriders whose clock moves."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.inside import Inside, Ticking, insides, openai_model
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.serving import Serving

NUMBERS = itertools.count(1)
SETTINGS = {"OUTRIDER_MAX_JOBS": "1", "OUTRIDER_PROFILES": "chat,echo,asking", "OUTRIDER_WEBHOOK_ALLOW": "127.0.0.1"}
ASKING = '[profiles.asking]\nhandler = "agent"\ntools = ["ask_user"]\n'


@pytest.fixture(scope="package")
def serving(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One job at a time, and a profile `asking` that may ask its user."""
    with Serving(tmp_path_factory.mktemp("lifecycle"), shared_model.env | SETTINGS, ASKING) as serving:
        yield serving


@pytest.fixture(scope="package")
def server(serving: Serving) -> Server:
    """One server for all."""
    return serving()


@pytest.fixture
def clock() -> Ticking:
    """Time that moves by itself only as far as to keep things in order."""
    return Ticking()


@pytest.fixture
def inside(tmp_path: Path, model: ScriptedModel, clock: Ticking) -> Iterator[Callable[..., Inside]]:
    """Makes running Outriders inside this process, on the test's clock: `inside(retention_days=1)`."""
    usual = {"profiles": "chat,echo", "webhook_allow": "127.0.0.1"}
    with insides(tmp_path, openai_model(model.base_url), clock, ASKING, **usual) as make:
        yield make


@pytest.fixture
def word() -> str:
    """A word that stands nowhere before this test says it."""
    return f"canary{next(NUMBERS):04}zq"


@pytest.fixture
def session() -> str:
    """A session's id that no other test uses."""
    return f"said-{next(NUMBERS):04}"
