"""One real server for all that needs no other settings."""

from collections.abc import Iterator

import pytest

from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.serving import Serving

# What it has for these tests: a lease that a restored server need not wait long for, and receivers on loopback.
OWN = {"OUTRIDER_LEASE_S": "3", "OUTRIDER_WEBHOOK_ALLOW": "127.0.0.1"}


@pytest.fixture(scope="package")
def serving(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("operating"), shared_model.env | OWN) as serving:
        yield serving


@pytest.fixture(scope="package")
def server(serving: Serving) -> Server:
    """The server of all tests here."""
    return serving()
