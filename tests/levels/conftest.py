"""Real servers whose levels a test sets: by environment, and by tables in `outrider.toml`. One a file and setting.

Tests that share a server have sessions of their own, and words that no other test uses.
"""

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.levels.watching import Watch
from tests.support.scripted import ScriptedModel
from tests.support.server import Server

Serving = Callable[..., Watch]
NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, shared_model: ScriptedModel) -> Iterator[Serving]:
    """A server that is watched: `serving(toml, OUTRIDER_ANSWER_LEVEL="redacted")`.

    The same again is the same server, unless it is asked for with `own=True`.
    """
    watches: dict[str, Watch] = {}

    def make(toml: str = "", own: bool = False, **env: str) -> Watch:
        wanted = f"{toml}{env}{next(NUMBERS) if own else ''}"
        if wanted not in watches:
            data = tmp_path_factory.mktemp("levels") / "data"
            data.mkdir()
            (data / "outrider.toml").write_text(toml)
            watches[wanted] = Watch(Server(data, env=asking(shared_model) | env)).start()
        return watches[wanted]

    yield make
    for watch in watches.values():
        watch.close()


def asking(model: ScriptedModel) -> dict[str, str]:
    """Two providers, as far as names go, at one address."""
    return model.env | {
        "OUTRIDER_MODEL": "openai-chat:first",
        "OUTRIDER_FALLBACK_MODELS": "ollama:second",
        "OLLAMA_BASE_URL": model.base_url,
        "OUTRIDER_WEBHOOK_ALLOW": "127.0.0.1",
    }


@pytest.fixture
def word() -> str:
    """A word that stands nowhere before this test says it."""
    return f"canary{next(NUMBERS):04}zq"
