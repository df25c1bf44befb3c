"""Servers with the trial plugin: one for all that needs no settings of its own, one with an output guard."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.scripted import ScriptedModel
from tests.support.server import Process, Server
from tests.support.trial import Trial

PROFILES = """
[profiles.topic]
description = "Takes a topic."
handler = "trial"

[profiles.topic.input_schema]
type = "object"
required = ["topic"]
properties.topic = { type = "string", maxLength = 10 }

[profiles.gives]
description = "Gives a number."
handler = "trial"
output_schema = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'

[profiles.numbers]
description = "Lets a model give a number."
output_schema = '{"type": "object", "required": ["n"]}'

[profiles.narrow]
description = "One tool, and its own words."
instructions = "Speak like a pirate."
tools = ["memory_recall"]

[profiles.sender]
description = "May send out and nothing else."
instructions = "Send out."
tools = ["task"]
answer_level = "redacted"

[profiles.few]
description = "Takes three at once."
handler = "trial"
max_open_tasks = 3

[profiles.nothing]
description = "Keeps no result."
answer_level = "metadata"

[profiles.masked]
description = "Masks."
handler = "trial"
answer_level = "redacted"

[profiles.free]
description = "Is not guarded."
handler = "trial"
output_guard = false

[profiles.hidden]
description = "Is not offered."
"""
OFFERED = "chat,echo,trial,trial-sync,topic,gives,numbers,narrow,sender,few,nothing,masked,free"


def asking(model: ScriptedModel) -> dict[str, str]:
    """The settings by which a server asks this model."""
    return {"OUTRIDER_MODEL": "openai-chat:scripted", "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "none"}


@pytest.fixture(scope="package")
def shared_model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture
def model(shared_model: ScriptedModel) -> Iterator[ScriptedModel]:
    """The model of all servers here, with nothing scripted yet."""
    shared_model.rules([])
    yield shared_model
    shared_model.rules([])


@pytest.fixture(scope="package")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """The doors and the diary of the shared server's plugin."""
    return Trial(tmp_path_factory.mktemp("trial"))


@pytest.fixture(scope="package")
def server(shared_model: ScriptedModel, trial: Trial, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of all tests that change none of its settings. It tries a turn once."""
    data = trial.data(tmp_path_factory.mktemp("profiles") / "data", PROFILES)
    env = asking(shared_model) | trial.env(OFFERED, OUTRIDER_MAX_ATTEMPTS="1")
    with Server(data, env=env) as server:
        yield server


@pytest.fixture(scope="package")
def guarded(shared_model: ScriptedModel, trial: Trial, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose plugin installs an output guard."""
    data = trial.data(tmp_path_factory.mktemp("guarded") / "data", PROFILES)
    env = asking(shared_model) | trial.env(OFFERED, OUTRIDER_MAX_ATTEMPTS="1", TRIAL="guard")
    with Server(data, env=env) as server:
        yield server


@pytest.fixture
def own(shared_model: ScriptedModel, trial: Trial, tmp_path: Path, processes: list[Process]) -> Callable[..., Server]:
    """Makes a server with tables and settings of its own: `own("[profiles.x]…", offered="chat,x", TRIAL="guard")`."""

    def make(toml: str = "", offered: str = "chat,trial", started: bool = True, **env: str) -> Server:
        data = trial.data(tmp_path / f"own-{len(processes)}", toml)
        server = Server(data, env=asking(shared_model) | trial.env(offered) | env)
        processes.append(server)
        return server.start() if started else server

    return make
