"""What the crash tests share: the lanes, the plans, and the sum at the end."""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.lanes import Lanes, Told
from tests.crash.mortal import Mortal
from tests.crash.plan import Plan, plans
from tests.support.life import Cradle
from tests.support.scripted import ScriptedModel

SUM = pytest.StashKey[list[Told]]()


@pytest.fixture
def mortal(cradle: Cradle, scripted: ScriptedModel, tmp_path: Path) -> Iterator[Mortal]:
    """A server that has not begun; its model is `scripted`."""
    with closing(Mortal(cradle, tmp_path / "data", scripted)) as server:
        yield server


@pytest.fixture(scope="module")
def lanes(cradle: Cradle) -> Iterator[Lanes]:
    with closing(Lanes(cradle)) as lanes:
        yield lanes


@pytest.fixture(scope="module")
def calm(lanes: Lanes) -> Told:
    """The story without a kill."""
    return lanes.tell(Plan()).result()


@pytest.fixture(scope="module")
def stories(request: pytest.FixtureRequest, lanes: Lanes) -> list[Future[Told]]:
    """All that are to be told, side by side: those of the seed, or again and again the one that is given."""
    count, given = number_of(request.config, "--crashes"), request.config.getoption("--kill")
    if given:
        return [lanes.tell(Plan.parse(given)) for _ in range(count)]
    calm: Told = request.getfixturevalue("calm")
    return [lanes.tell(plan) for plan in plans(calm.calm, count, number_of(request.config, "--crash-seed"))]


def number_of(config: pytest.Config, option: str) -> int:
    """An option's number."""
    return int(config.getoption(option) or 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    told = config.stash.get(SUM, [])
    if told:
        kills, seconds = sum(len(each.deaths) for each in told), sum(each.seconds for each in told)
        late = sum(len(each.deaths) < len(each.plan.kills) for each in told)
        terminalreporter.write_line(
            f"crash: {len(told)} stories, {kills} kills, {seconds / max(kills, 1):.2f} s a kill; "
            f"in {late} stories a kill came too late"
        )
