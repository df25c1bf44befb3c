"""One server with the trial plugin's kinds of work; stories that kill have one of their own."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.serving import Serving
from tests.support.trial import PROFILES, Trial

LIBRARIAN = """
[profiles.librarian]
description = "Takes in what it is told to."
tools = ["knowledge_ingest"]
"""


@pytest.fixture(scope="package")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """The doors and the diary of the plugin."""
    return Trial(tmp_path_factory.mktemp("trial"))


@pytest.fixture(scope="package")
def serving(shared_model: ScriptedModel, trial: Trial, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("work")
    opened = {
        "OUTRIDER_FETCH": "public",
        "OUTRIDER_FETCH_ALLOW": "127.0.0.2",
        "OUTRIDER_INGEST_FOLDERS": str(folder / "opened"),
    }
    env = shared_model.env | trial.env("chat,trial,librarian", TRIAL="works") | opened
    with Serving(folder, env, PROFILES + LIBRARIAN) as serving:
        yield serving


@pytest.fixture(scope="package")
def server(serving: Serving) -> Server:
    """The server of all tests that kill nothing."""
    return serving()


@pytest.fixture
def own(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Servers of a test's own, which it may kill."""
    with serving.at(tmp_path_factory.mktemp("own")) as own:
        yield own


@pytest.fixture
def session(server: Server) -> str:
    """A chat of the test's own."""
    return server.post("/api/sessions")["id"]


def hired(server: Server, session: str, kind: str = "trial-steps", verb: str = "work", **asked: Any) -> str:
    """A job of this kind that the plugin has sent out for a session; its id, or why there is none."""
    about = {"key": asked.pop("key", None), "description": asked.pop("description", "")}
    given = {"session": session, **about} | ({"kind": kind, "args": asked} if verb == "work" else {})
    return server.ask("plugin", f"{verb} {json.dumps(given)}", skill="trial")


def ended(server: Server, job_id: str) -> dict[str, Any]:
    """The job, once it has ended."""
    server.wait(lambda: server.job(job_id)["completed_at"])
    return server.job(job_id)
