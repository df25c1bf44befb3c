"""Processes for tests start, die and go as their helper says: shown with a small server that is not Outrider."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.life import Cradle, bare
from tests.support.server import Server, free_port, wait


class StandIn(Server):
    module = "tests.support.stand_in"


class Fresh(Server):
    fresh = True


class FreshStandIn(StandIn):
    fresh = True


@pytest.fixture(params=[StandIn, FreshStandIn], ids=["forked", "from nothing"])
def stand_in(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StandIn]:
    server = request.param(tmp_path / "data")
    yield server
    server.close()


def children(server: Server) -> list[int]:
    return [int(line.split()[1]) for line in server.log().splitlines() if line.startswith("child")]


def state_of(pid: int) -> str:
    """The kernel's letter for a process: S sleeps, T is stopped, Z has ended and nobody has asked how; "" is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def gone(pid: int) -> bool:
    return state_of(pid) in ("", "Z")


def test_a_started_server_is_ready_and_stops_when_asked(stand_in: StandIn) -> None:
    stand_in.start()
    assert stand_in.http.get("/readyz").status_code == 200
    assert stand_in.stop() == 7
    assert not stand_in.running and not stand_in.ready()


def test_nothing_of_the_machines_settings_reaches_a_server(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_MODEL", "leaked")
    assert "model None" in stand_in.start().log()


def test_a_killed_server_comes_back_on_the_same_port_with_its_log(stand_in: StandIn) -> None:
    first = stand_in.start().pid
    stand_in.kill()
    assert state_of(first) == ""
    second = stand_in.restart().pid
    assert second != first and stand_in.restart().pid != second
    assert stand_in.ready() and len(children(stand_in)) == 3


def test_a_frozen_server_stands_still_until_it_is_thawed(stand_in: StandIn) -> None:
    pid = stand_in.start().pid
    stand_in.freeze()
    assert wait(lambda: state_of(pid) == "T")
    stand_in.thaw()
    assert wait(lambda: state_of(pid) == "S")


def test_a_server_that_cannot_start_shows_why(tmp_path: Path) -> None:
    server = StandIn(tmp_path / "data", env={"fail": "1"})
    with pytest.raises(AssertionError, match=r"ended with 1 instead of starting\nthis setting is bad"), server:
        pytest.fail("it started")


def test_closing_ends_what_the_server_had_started_in_all_its_starts(stand_in: StandIn) -> None:
    stand_in.start().kill()
    started = children(stand_in.start())
    assert len(started) == 2 and not any(map(gone, started))
    stand_in.close()
    assert wait(lambda: all(map(gone, started)))


@pytest.mark.parametrize("kind", [Server, Fresh], ids=["forked", "from nothing"])
def test_outrider_works_and_ends_alike_however_it_began(tmp_path: Path, kind: type[Server]) -> None:
    with kind(tmp_path / "data", env={"OUTRIDER_PROFILES": "chat,echo"}) as server:
        assert server.ask("s", "hello", skill="echo") == "hello"
        command = Path(f"/proc/{server.pid}/cmdline").read_text()
        assert ("web.cli" if kind.fresh else "tests.support.cradle") in command
        assert server.stop() == 0


def test_a_cradle_that_is_closed_leaves_nobody(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Cradle() as cradle:
        life = cradle.bear("tests.support.stand_in", (), bare() | {"OUTRIDER_PORT": str(free_port())}, log)
        assert wait(lambda: log.read_text() if log.exists() else "")
        assert life.poll() is None
    assert life.poll() == -signal.SIGKILL and state_of(life.pid) == ""
    assert wait(lambda: gone(int(log.read_text().split()[1])))
