"""A server that is killed at any commit, or at any moment, and started again, breaks no promise.

What happens is in `story.py`, what must hold in `promises.py`, when it is killed in `plan.py`.
"""

from concurrent.futures import Future

import pytest

from tests.crash.conftest import SUM, number_of
from tests.crash.lanes import Told


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" in metafunc.fixturenames:
        metafunc.parametrize("number", range(number_of(metafunc.config, "--crashes")))


def test_a_server_that_nobody_kills_keeps_its_promises(calm: Told) -> None:
    if calm.broken:
        pytest.fail(str(calm), pytrace=False)


def test_a_server_that_is_killed_keeps_its_promises(
    stories: list[Future[Told]], number: int, pytestconfig: pytest.Config
) -> None:
    told = stories[number].result()
    pytestconfig.stash.setdefault(SUM, []).append(told)
    if told.broken:
        pytest.fail(str(told), pytrace=False)
