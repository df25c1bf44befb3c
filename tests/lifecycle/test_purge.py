"""Retention as clients meet it: what has outlived its time is not there, its ids and keys are free, its space is given back."""

from collections.abc import Callable
from typing import Any

from tests.a2a import wire
from tests.lifecycle.looking import bytes_left, cells, cleaned, places
from tests.push.hooks import echo, hook, refused, states
from tests.support.inside import Inside
from tests.support.receiver import Receiver
from tests.support.rules import Rule
from tests.support.scripted import ScriptedModel

Make = Callable[..., Inside]
DAY = 86400


def days_pass(outrider: Inside, days: float) -> None:
    """The clock moves on, and the purge that is due has been done."""
    outrider.pass_time(days * DAY)
    now = outrider.outrider.house.db.now()
    due = "select 1 from runs where kind = 'purge' and state = 'queued' and due_at > :now"
    outrider.wait(lambda: outrider.rows(due, now=now))
    outrider.call(
        outrider.outrider.worker._renew()
    )  # it has been silent for so long, and would be heard from in seconds


def test_a_task_is_not_there_any_more(inside: Make, word: str) -> None:
    """F160: Get, log and webhooks are without it, and the id of its message is taken anew."""
    outrider = inside(retention_days=30)
    with Receiver() as receiver:
        task = echo(outrider, hook(receiver), f"say {word}")
        outrider.wait(lambda: states(outrider, task) == ["delivered"] * 4)
        old = outrider.say("s", f"Remember {word}.", message_id=f"of-{word}", skill="echo")
        outrider.ended(old)
        sealed = cells(outrider.data, word)
        days_pass(outrider, 29)
        assert outrider.task(old)["status"]["state"] == "TASK_STATE_COMPLETED"
        young = outrider.say("s", "Still here.", skill="echo")
        outrider.ended(young)
        days_pass(outrider, 2)
        for gone in (task, old):
            assert wire.told(wire.post(outrider, "GetTask", {"id": gone})) == (200, -32001, "TASK_NOT_FOUND")
        assert refused(outrider, "Get", taskId=task, id=task)[1] == -32001
        assert outrider.get("/api/webhooks")["webhooks"] == []
        assert {message["task_id"] for message in outrider.messages("s")} == {young}
        assert [one["id"] for one in outrider.get("/api/sessions")["sessions"]] == ["s"]
        outrider.wait(lambda: bytes_left(outrider.data, sealed) == [])
        fresh = outrider.say("s", "Something else.", message_id=f"of-{word}", skill="echo")
        assert fresh not in (old, young)
        outrider.ended(fresh)


def test_a_profile_has_days_of_its_own(inside: Make) -> None:
    """F160."""
    outrider = inside(toml='[profiles.brief]\nhandler = "echo"\nretention_days = 2\n', profiles="chat,echo,brief")
    brief, usual = outrider.say("s", "one", skill="brief"), outrider.say("s", "two", skill="echo")
    for task in (brief, usual):
        outrider.ended(task)
    days_pass(outrider, 3)
    assert [message["task_id"] for message in outrider.messages("s")] == [usual, usual]
    days_pass(outrider, 28)
    assert outrider.http.get("/api/sessions/s").status_code == 404


def test_a_job_goes_with_its_report_and_memory_keeps_it(inside: Make, model: ScriptedModel, word: str) -> None:
    """F161, F133: a report outlives its job in the index, until it or its session is erased."""
    model.rules([Rule(last_user="^look", text=f"Found {word}."), Rule(last_user="<task-noti", text="Briefed.")])
    outrider = inside(retention_days=30)
    outrider.post("/api/sessions", id="s")
    job = outrider.spawn("s", "look", "a look")["id"]
    outrider.wait(lambda: outrider.job(job)["notified"])
    days_pass(outrider, 31)
    assert outrider.http.get(f"/api/background/{job}").status_code == 404
    assert outrider.http.get(f"/api/sessions/background:{job}").status_code == 404
    assert outrider.get("/api/background", dismissed="true")["jobs"] == []
    assert [hit["job_id"] for hit in outrider.get("/api/knowledge/search", q=word)["hits"]] == [job]
    left = places(outrider.data, word)
    assert left and all("knowledge" in place for place in left), left


def test_what_memory_kept_goes_with_the_session_and_a_document_of_its_name_does_not(
    inside: Make, model: ScriptedModel, word: str
) -> None:
    """F159: reports of jobs that were purged long before are the session's too."""
    model.rules([Rule(last_user="^look", text=f"Found {word}."), Rule(last_user="<task-noti", text="Briefed.")])
    outrider = inside(retention_days=30)
    outrider.post("/api/sessions", id="s")
    job = outrider.spawn("s", "look", "a look")["id"]
    outrider.wait(lambda: outrider.job(job)["notified"])
    outrider.post("/api/knowledge/documents", name="s", text="A document whose name is s.")
    outrider.pass_time(20 * DAY)
    outrider.call(outrider.outrider.worker._renew())
    outrider.ask("s", "Still there?")
    days_pass(outrider, 15)
    assert [hit["job_id"] for hit in outrider.get("/api/knowledge/search", q=word)["hits"]] == [job]
    assert outrider.http.delete("/api/sessions/s").status_code == 202
    cleaned(outrider)
    assert places(outrider.data, word) == []
    assert [hit["source"] for hit in outrider.get("/api/knowledge/search", q="document whose name")["hits"]][:1] == [
        "s"
    ]


def test_who_comes_back_after_events_were_purged_is_told_to_begin_anew(inside: Make) -> None:
    outrider = inside(retention_days=30)
    outrider.ask("s", "one", skill="echo")
    first = outrider.rows("select min(id) as id from events")[0]["id"]
    days_pass(outrider, 31)
    outrider.ask("s", "two", skill="echo")

    def begins(last: int) -> str:
        headers = {"Last-Event-ID": str(last)}
        with outrider.http.stream("GET", "/api/events", headers=headers) as stream:
            return next(line for line in stream.iter_lines() if line)

    assert begins(first) == "event: reset"
    newest = outrider.rows("select max(id) as id from events")[0]["id"]
    assert begins(newest) == ": open"


def test_the_space_of_what_was_purged_is_given_back(inside: Make) -> None:
    """F133: all of it, however much it is."""
    outrider = inside(retention_days=30)
    text = "x" * 200_000
    for number in range(30):
        outrider.ask("s", f"{number} {text}", skill="echo")
    file = outrider.data / "outrider.db"
    outrider.call(outrider.outrider.house.db.shrink())
    full = file.stat().st_size
    assert full > 15_000_000
    days_pass(outrider, 31)
    outrider.wait(lambda: file.stat().st_size < 1_000_000 and _log_size(outrider) < 100_000)
    assert outrider.rows("pragma freelist_count")[0]["freelist_count"] == 0


def _log_size(outrider: Inside) -> Any:
    log = outrider.data / "outrider.db-wal"
    return log.stat().st_size if log.exists() else 0
