"""Erasing between two steps: a post that is on its way, a report that is being indexed, a nudge that is to come again."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.lifecycle.looking import cleaned, places
from tests.support.inside import Inside
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel

Make = Callable[..., Inside]
SESSION = "s"


class Held:
    """A place at which posts, or puts, are held until they are let go; counts who came."""

    def __init__(self) -> None:
        self.come, self._done, self._go = threading.Semaphore(0), threading.Semaphore(0), threading.Event()

    def arrived(self) -> None:
        assert self.come.acquire(timeout=20), "nobody came"

    def answered(self) -> None:
        assert self._done.acquire(timeout=20), "nobody was answered"

    def let_go(self) -> None:
        self._go.set()

    async def wait(self) -> None:
        self.come.release()
        await asyncio.to_thread(self._go.wait, 20)

    async def road(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Goes on though its sender gives it up: a post that has been taken in is not taken back."""

        async def on_its_way() -> None:
            await self.wait()
            await app(scope, receive, send)
            self._done.release()

        await asyncio.shield(asyncio.create_task(on_its_way()))


@pytest.fixture
def held() -> Any:
    place = Held()
    yield place
    place.let_go()


def briefed(model: ScriptedModel, word: str, **how: Any) -> None:
    model.rules([Rule(last_user=f"^{word}$", text=f"Report {word}."), Rule(last_user="<task-noti", **how)])


def sent(outrider: Inside, word: str) -> str:
    outrider.post("/api/sessions", id=SESSION)
    return outrider.spawn(SESSION, word, f"about {word}")["id"]


def erase(outrider: Inside) -> None:
    assert outrider.http.delete(f"/api/sessions/{SESSION}").status_code == 202


def nothing_but(outrider: Inside, *texts: str) -> None:
    """The session of this id has these entries and no job; nothing else of it is there, and nothing waits to be done."""
    cleaned(outrider)
    open_runs = "select kind from runs where ended_at is null and kind not in ('purge', 'remember')"
    outrider.wait(lambda: not outrider.rows(open_runs))
    assert [message["text"] for message in outrider.messages(SESSION)] == [*texts]
    assert outrider.jobs(SESSION) == []
    assert outrider.rows("select count(*) as n from sessions") == [{"n": 1}]


@pytest.mark.parametrize("anew", [True, False], ids=["made anew", "gone"])
def test_a_nudge_that_is_on_its_way_wakes_nobody(
    inside: Make, model: ScriptedModel, held: Held, word: str, anew: bool
) -> None:
    """S27 (a), F159: it was posted for the session that was, and neither enters the one of the same id nor makes one."""
    model.rules([Rule(last_user=f"^{word}$", text=f"Report {word}.", gate="report")])
    outrider = inside()
    job_id = sent(outrider, word)
    model.held_at("report")
    outrider.break_posts(held.road)
    model.open("report")
    held.arrived()
    assert outrider.job(job_id)["status"] == "completed"
    erase(outrider)
    if anew:
        outrider.ask(SESSION, "Who are you?")
    held.let_go()
    held.answered()
    if not anew:
        assert outrider.http.get(f"/api/sessions/{SESSION}").status_code == 404
        outrider.ask(SESSION, "Who are you?")
    nothing_but(outrider, "Who are you?", "ok")
    assert not any("<task-notification>" in asked.text for asked in model.requests())
    assert places(outrider.data, word) == []


def test_a_job_that_is_being_dispatched_is_not(inside: Make, model: ScriptedModel, held: Held, word: str) -> None:
    """S08 (c): the post of its prompt is on its way when its session is erased."""
    outrider = inside()
    outrider.break_posts(held.road)
    sent(outrider, word)
    held.arrived()
    erase(outrider)
    held.let_go()
    held.answered()
    outrider.ask(SESSION, "Who are you?")
    nothing_but(outrider, "Who are you?", "ok")
    assert places(outrider.data, word) == []


@pytest.mark.parametrize("moment", ["before_put", "after_put"])
def test_a_report_that_is_being_indexed_stays_out_of_the_index(
    inside: Make, model: ScriptedModel, held: Held, word: str, moment: str
) -> None:
    """F159: the store is given the report, or has just taken it, when its session is erased."""
    briefed(model, word, text="Briefed.")
    outrider = inside()
    setattr(outrider.outrider.store, moment, held.wait)
    job_id = sent(outrider, word)
    held.arrived()
    erase(outrider)
    cleaned(outrider)
    held.let_go()
    outrider.ask(SESSION, "Who are you?")
    nothing_but(outrider, "Who are you?", "ok")
    assert outrider.get("/api/knowledge/search", q=word)["hits"] == []
    assert word not in str(outrider.get("/api/knowledge/documents"))
    assert outrider.http.get(f"/api/background/{job_id}").status_code == 404
    assert places(outrider.data, word) == []


def test_an_erased_report_that_is_being_indexed_stays_out_of_the_index(
    inside: Make, model: ScriptedModel, held: Held, word: str
) -> None:
    """F165: and its job does not say that it is indexed."""
    briefed(model, word, text="Briefed.")
    outrider = inside()
    outrider.outrider.store.before_put = held.wait
    job_id = sent(outrider, word)
    held.arrived()
    assert outrider.http.delete(f"/api/background/{job_id}/report").status_code == 202
    cleaned(outrider)
    held.let_go()
    outrider.wait(lambda: outrider.job(job_id)["notified"])
    shown = outrider.job(job_id)
    assert (shown["erased"], shown["indexed"], shown["report"], shown["excerpt"]) == (True, False, None, "")
    assert outrider.get("/api/knowledge/search", q=f"Report {word}", source_type="background_report")["hits"] == []


def test_a_nudge_that_is_to_come_again_goes_with_its_session(inside: Make, model: ScriptedModel, word: str) -> None:
    """Its briefing has failed, and the next one is due in a minute."""
    briefed(model, word, status=400, text="no")
    outrider = inside()
    sent(outrider, word)
    outrider.wait(lambda: outrider.rows("select 1 from runs where key like 'nudge:again:%'"))
    erase(outrider)
    outrider.ask(SESSION, "Who are you?")
    nothing_but(outrider, "Who are you?", "ok")


def test_a_nudge_that_is_to_come_again_comes_though_the_turn_that_failed_is_erased(
    inside: Make, model: ScriptedModel, word: str
) -> None:
    """F158: what the erased turn was to tell is told by the next."""
    briefed(model, word, status=400, text="no")
    outrider = inside()
    job_id = sent(outrider, word)
    (again,) = outrider.wait(lambda: outrider.rows("select key from runs where key like 'nudge:again:%'"))
    task = again["key"].removeprefix("nudge:again:")
    assert outrider.http.delete(f"/api/sessions/{SESSION}/tasks/{task}").status_code == 202
    cleaned(outrider)
    briefed(model, word, text="Briefed.")
    outrider.pass_pause("nudge")
    outrider.wait(lambda: outrider.job(job_id)["notified"])
    assert outrider.messages(SESSION)[-1]["text"] == "Briefed."


def test_a_nudge_for_jobs_that_are_gone_ends_without_a_word(inside: Make, model: ScriptedModel, word: str) -> None:
    """A run that another process has left behind: what it tells of was erased."""
    briefed(model, word, text="Briefed.")
    outrider = inside()
    job_id = sent(outrider, word)
    outrider.wait(lambda: outrider.job(job_id)["notified"])
    (run,) = outrider.rows("select key, params from runs where kind = 'nudge'")
    erase(outrider)
    heard = len(model.requests())

    def back(tx: Any) -> None:
        sql = "insert into runs (kind, key, params, state, due_at, created_at) values ('nudge', :key, :params, 'queued', 0, 0)"
        tx.x(sql, **run)
        tx.ring("runs")

    outrider.write(back)
    outrider.wait(lambda: outrider.rows("select 1 from runs where kind = 'nudge' and state = 'done'"))
    assert len(model.requests()) == heard
