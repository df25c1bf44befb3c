"""One running server for all promises of the API that do not need one of their own; its model is `model`."""

from collections.abc import Iterator

import pytest

from tests.support.scripted import ScriptedModel
from tests.support.server import Server

ROOM = {"OUTRIDER_PROFILES": "chat,echo", "OUTRIDER_MAX_QUEUED_JOBS": "8"}


@pytest.fixture(scope="package")
def api(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of all API tests; eight jobs may wait."""
    with Server(tmp_path_factory.mktemp("api") / "data", env=shared_model.env | ROOM) as server:
        yield server
