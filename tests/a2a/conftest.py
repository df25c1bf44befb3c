"""One running server for all promises that do not need one of their own, and two with other limits."""

from collections.abc import Callable, Iterator

import pytest

from tests.a2a.over_grpc import served
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.support.serving import Serving

PROFILES = {"OUTRIDER_PROFILES": "chat,echo"}


def asking(model: ScriptedModel) -> dict[str, str]:
    """The settings by which a server asks this model, and offers these profiles."""
    return model.env | PROFILES


@pytest.fixture(scope="package")
def serving(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("a2a"), asking(shared_model)) as serving:
        yield serving


@pytest.fixture(scope="package")
def shared(serving: Callable[..., Server]) -> Server:
    """The server of all tests that change none of its settings and do not end it."""
    return serving(**served())


@pytest.fixture(scope="package")
def tight(serving: Callable[..., Server]) -> Server:
    """A server that has room for little: 2 waiting requests, 3 open tasks, 2 streams of a user, 1 of a task."""
    return serving(
        OUTRIDER_MAX_WAITING_REQUESTS="2",
        OUTRIDER_MAX_OPEN_TASKS_PER_USER="3",
        OUTRIDER_MAX_STREAMS_PER_USER="2",
        OUTRIDER_MAX_STREAMS_PER_TASK="1",
    )


@pytest.fixture(scope="package")
def impatient(serving: Callable[..., Server]) -> Server:
    """A server that waits for 1 s at most, with one stream, of half a second; tests may start it anew."""
    limits = {"OUTRIDER_BLOCKING_WAIT_S": "1", "OUTRIDER_STREAM_MAX_S": "0.5", "OUTRIDER_MAX_STREAMS": "1"}
    return serving(**limits, **served())
