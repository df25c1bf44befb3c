"""Servers with the trial plugin: one for all that needs no settings of its own, one with an output guard."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.serving import Serving
from tests.support.trial import PROFILES as TRIALS
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


@pytest.fixture(scope="package")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """The doors and the diary of the shared server's plugin."""
    return Trial(tmp_path_factory.mktemp("trial"))


@pytest.fixture(scope="package")
def serving(shared_model: ScriptedModel, trial: Trial, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    env = shared_model.env | trial.env(OFFERED)
    with Serving(tmp_path_factory.mktemp("profiles"), env, TRIALS + PROFILES) as serving:
        yield serving


@pytest.fixture(scope="package")
def server(serving: Serving) -> Server:
    """The server of all tests that change none of its settings. It tries a turn once."""
    return serving(OUTRIDER_MAX_ATTEMPTS="1")


@pytest.fixture(scope="package")
def guarded(serving: Serving) -> Server:
    """A server whose plugin installs an output guard."""
    return serving(OUTRIDER_MAX_ATTEMPTS="1", TRIAL="guard")


@pytest.fixture
def own(serving: Serving, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Makes a server with tables and settings of its own: `own("[profiles.x]…", offered="chat,x", TRIAL="guard")`."""
    with serving.at(tmp_path) as made:

        def make(toml: str = "", offered: str = "chat,trial", **more: Any) -> Server:
            return made(toml=TRIALS + toml, OUTRIDER_PROFILES=offered, **more)

        yield make
