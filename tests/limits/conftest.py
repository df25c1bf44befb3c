"""A server for what is refused; its model is the offline one."""

from collections.abc import Iterator

import pytest

from tests.a2a import over_grpc
from tests.support.server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """It is there for a whole module, and lives through all of it: who breaks it fails."""
    env = {"OUTRIDER_MODEL": "offline", "OUTRIDER_PROFILES": "chat,echo", **over_grpc.served()}
    with Server(tmp_path_factory.mktemp("limits") / "data", env=env) as server:
        yield server
        assert server.running and server.http.get("/healthz").status_code == 200
        assert "Traceback" not in server.log()
