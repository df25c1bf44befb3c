"""Real servers whose levels a test sets: by environment, and by tables in `outrider.toml`; each with a model of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.levels.watching import Watch
from tests.support.scripted import ScriptedModel
from tests.support.server import Process, Server

Serving = Callable[..., Watch]


@pytest.fixture
def serving(tmp_path: Path, scripted: ScriptedModel, processes: list[Process]) -> Iterator[Serving]:
    """Starts a server and watches it: `serving(toml, OUTRIDER_ANSWER_LEVEL="redacted")`."""
    watches: list[Watch] = []

    def make(toml: str = "", **env: str) -> Watch:
        data = tmp_path / f"data-{len(watches)}"
        data.mkdir()
        (data / "outrider.toml").write_text(toml)
        asking = {
            "OUTRIDER_MODEL": "openai-chat:first",
            "OUTRIDER_FALLBACK_MODELS": "ollama:second",
            "OPENAI_BASE_URL": scripted.base_url,
            "OPENAI_API_KEY": "none",
            "OLLAMA_BASE_URL": scripted.base_url,
            "OUTRIDER_WEBHOOK_ALLOW": "127.0.0.1",
        }
        server = Server(data, env=asking | env)
        processes.append(server)
        watches.append(Watch(server.start()).__enter__())
        return watches[-1]

    yield make
    for watch in watches:
        watch.__exit__()
