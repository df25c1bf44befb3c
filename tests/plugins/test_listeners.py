"""F145: plugins hear what happens, after the commit and in order; what a listener could not take it is told again."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.handlers import MalformedHandler
from agent.plugins import Additions, MalformedPlugin, Plugins
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel
from tests.support.server import Process, Server
from tests.support.serving import Serving
from tests.support.trial import Trial

WORK = [Rule(anywhere="detached, in the background", last_user="^work", text="Report: it is done.")]
ROAD = ["background.queued", "background.started", "background.completed"]


@pytest.fixture
def ear(tmp_path: Path) -> Trial:
    """What the listeners of one test write."""
    return Trial(tmp_path / "ear")


@pytest.fixture
def hearing(own: Serving, ear: Trial, model: ScriptedModel) -> Iterator[Server]:
    """A server whose plugin listens. Its leases are short, so that who comes after a kill need not wait."""
    model.rules(WORK)
    yield own(TRIAL="hears", TRIAL_FOLDER=str(ear.folder), OUTRIDER_LEASE_S="1")


def heard(ear: Trial, what: str = "heard") -> list[list[str]]:
    return [line.split(" ")[1:] for line in ear.diary() if line.startswith(f"{what} ")]


def ended(server: Server, session: str, description: str = "a job") -> str:
    """A job that has ended and was told."""
    job = server.spawn(session, "work", description)["id"]
    server.wait(lambda: server.job(job)["notified"])
    return job


def of(ear: Trial, job: str) -> list[str]:
    return [name for _, name, _, whose in heard(ear) if whose == job]


def test_f145_a_listener_hears_a_job_s_whole_road_and_its_briefing_in_order(hearing: Server, ear: Trial) -> None:
    session = hearing.post("/api/sessions")["id"]
    job = ended(hearing, session)
    hearing.wait(lambda: [name for _, name, *_ in heard(ear)].count("turn.finished") == 1)
    numbers = [int(number) for number, *_ in heard(ear)]
    assert numbers == sorted(set(numbers)) and {owner for _, _, owner, _ in heard(ear)} == {"local"}
    assert of(ear, job)[:3] == ROAD
    assert {"turn.started", "turn.finished"} <= {name for _, name, *_ in heard(ear)}


def test_f145_a_listener_reads_the_report_and_sends_the_next_job_out(hearing: Server, ear: Trial) -> None:
    session = hearing.post("/api/sessions")["id"]
    job = ended(hearing, session, "follow me")
    hearing.wait(lambda: len(heard(ear, "ended")) == 2)
    (followed,) = {line[1] for line in heard(ear, "followed")}
    assert heard(ear, "ended") == [[one, "Report:", "it", "is", "done."] for one in (job, followed)]
    assert hearing.job(followed)["plugin"] == "trial"


def test_f145_s84_what_a_failing_listener_could_not_take_it_is_told_again_and_nothing_else_waits(
    hearing: Server, ear: Trial
) -> None:
    ear.open("deaf")
    session = hearing.post("/api/sessions")["id"]
    first, second = ended(hearing, session), ended(hearing, session)
    hearing.wait(lambda: len(heard(ear, "deaf")) > 1)
    assert len({line[-1] for line in heard(ear, "deaf")}) == 1 and heard(ear) == []
    hearing.wait(lambda: {line[0] for line in heard(ear, "ended")} == {first, second})  # the other listener hears all
    ear.open("mended")
    hearing.wait(lambda: of(ear, second)[:3] == ROAD)
    assert of(ear, first)[:3] == ROAD
    log = hearing.log()
    assert "listener trial:diary failed, error " in log


def test_f145_what_a_killed_process_had_not_told_is_told_by_the_next(hearing: Server, ear: Trial) -> None:
    ear.open("deaf")
    session = hearing.post("/api/sessions")["id"]
    job = ended(hearing, session)
    hearing.wait(lambda: heard(ear, "deaf"))
    hearing.kill()
    ear.open("mended")
    hearing.start()
    hearing.wait(lambda: of(ear, job)[:3] == ROAD)
    once = heard(ear)
    hearing.stop()
    hearing.start()
    again = ended(hearing, session)
    hearing.wait(lambda: of(ear, again)[:3] == ROAD)
    assert heard(ear)[: len(once)] == once  # what it has taken does not come again


def test_f145_of_two_processes_one_tells(hearing: Server, ear: Trial, worker_factory: Callable[..., Process]) -> None:
    worker_factory(hearing, **ear.env("chat,trial,trial-sync", TRIAL="hears", OUTRIDER_LEASE_S="1"))
    session = hearing.post("/api/sessions")["id"]
    jobs = [ended(hearing, session) for _ in range(3)]
    hearing.wait(lambda: all(of(ear, job)[:3] == ROAD for job in jobs))
    numbers = [number for number, *_ in heard(ear)]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("late", print, "background.nosuch"), "there is no event 'background.nosuch'; there are background.queued"),
        (("there", print), "there is a listener 'there' of this plugin already"),
        (("Not A Name", print), "a small letter, then"),
        (("thing", "no function"), "a function is wanted, not str"),
    ],
)
def test_s84_a_listener_that_could_hear_nothing_is_refused(given: tuple[Any, ...], why: str) -> None:
    additions = Additions(Plugins(), "p")
    additions.listener("there", print)
    with pytest.raises((MalformedPlugin, MalformedHandler), match=why):
        additions.listener(*given)
