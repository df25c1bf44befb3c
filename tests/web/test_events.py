"""`GET /api/events`: what happens is heard once, in order, under the same ids in every process, and by nobody too slowly."""

import itertools
import json
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

import httpx
import pytest

from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from tests.web.shapes import Json, assert_job, assert_shaped, told

CAUSE = {"session": str, "task_id": str, "origin": str, "trigger": str | None}
NUMBERS = itertools.count(1)


class Event(NamedTuple):
    name: str
    id: int | None
    data: Json


class Heard:
    """The events of an open stream, one after another."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.opening = next(lines)

    def __iter__(self) -> Iterator[Event]:
        fields: dict[str, str] = {}
        if self.opening.startswith("event"):
            fields = dict([self.opening.split(": ", 1)])
        for line in self._lines:
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                yield Event(fields["event"], int(fields["id"]) if "id" in fields else None, json.loads(fields["data"]))
                fields = {}

    def until(self, last: Callable[[Event], bool]) -> list[Event]:
        """Everything up to this one."""
        found: list[Event] = []
        for event in self:
            found.append(event)
            if last(event):
                return found
        raise AssertionError(f"it ended with {found}")


@contextmanager
def listening(server: Server, last: int | None = None, **narrow: str) -> Iterator[Heard]:
    """An open stream; `last` is the id of the last event that its listener knows."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with (
        httpx.Client(base_url=server.url, timeout=20, trust_env=False) as client,
        client.stream("GET", "/api/events", params=narrow, headers=headers) as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store" and response.headers["x-accel-buffering"] == "no"
        yield Heard(response.iter_lines())


@pytest.fixture
def session(api: Server, model: ScriptedModel) -> str:
    """A chat of the test's own."""
    return api.post("/api/sessions", id=f"e-{next(NUMBERS)}")["id"]


def finished(task_id: str) -> Callable[[Event], bool]:
    return lambda event: event.name == "turn.finished" and event.data["task_id"] == task_id


def rows(events: list[Event]) -> list[Event]:
    """Those that stand in the database."""
    return [event for event in events if event.id is not None]


# --- what is told ---------------------------------------------------------------------------------------------------


def test_f100_a_jobs_way_and_the_briefing_of_it_are_heard_in_order_each_in_its_shape(
    api: Server, model: ScriptedModel, session: str
) -> None:
    model.rules(
        [{"last_user": "look", "not_anywhere": "task-notification", "text": "the report"}, {"text": "Told you."}]
    )
    with listening(api, session=session) as heard:
        job = api.spawn(session, "look")
        events = heard.until(lambda event: event.name == "turn.finished")
    stored = rows(events)
    assert [event.name for event in stored] == [
        "background.queued",
        "background.started",
        "background.completed",
        "turn.started",
        "turn.finished",
    ]
    ids = [event.id or 0 for event in stored]
    assert ids == sorted(set(ids))
    for event in stored[:3]:
        assert_job(event.data, without=("prompt",))
        assert event.data["id"] == job["id"]
    assert [event.data["status"] for event in stored[:3]] == ["queued", "running", "completed"]
    assert stored[2].data["excerpt"] == "the report"
    started, ended = stored[3:]
    assert_shaped(started.data, CAUSE)
    assert (started.data["origin"], started.data["trigger"]) == ("background-resume", job["id"])
    assert_shaped(ended.data, CAUSE | {"state": str, "reason": str | None})
    assert ended.data["state"] == "completed" and ended.data["task_id"] == api.job(job["id"])["notified_in"]
    deltas = [event for event in events if event.name == "turn.delta"]
    assert deltas and all(event.id is None for event in deltas)
    for event in deltas:
        attempt = event.data.pop("attempt", 1)  # a model that is asked again begins its text anew
        assert_shaped(event.data, CAUSE | {"text": str})
        assert attempt == 1
        assert {name: event.data[name] for name in CAUSE} == started.data
    assert "".join(event.data["text"] for event in deltas) == "Told you."


def test_a_turns_text_is_heard_between_its_start_and_its_end(api: Server, model: ScriptedModel, session: str) -> None:
    """A preview that came behind the end would stand beside the answer that has replaced it."""
    model.rules([{"repeat": ("word ", 400)}])
    with listening(api, session=session) as heard:
        tasks = [api.say(session, f"turn {number}") for number in range(20)]
        events = heard.until(finished(tasks[-1]))
    for task_id in tasks:
        names = [event.name for event in events if event.data["task_id"] == task_id]
        assert [name for name, _ in itertools.groupby(names)] == ["turn.started", "turn.delta", "turn.finished"]


def test_f119_a_turn_that_fails_says_so_and_why(api: Server, model: ScriptedModel, session: str) -> None:
    model.rules([{"status": 400, "text": "no"}])
    with listening(api, session=session) as heard:
        task_id = api.say(session, "hello")
        *_, last = heard.until(finished(task_id))
    assert (last.data["state"], last.data["reason"]) == ("failed", "MODEL_FAILED")
    assert (last.data["origin"], last.data["trigger"]) == ("user", None)


def test_a_session_narrows_to_what_happens_in_it(api: Server, model: ScriptedModel, session: str) -> None:
    other = api.post("/api/sessions")["id"]
    with listening(api, session=session) as narrow, listening(api) as wide:
        for each in (other, session, other, session):
            api.ask(each, "hello", skill="echo")
        last = api.say(session, "the last", skill="echo")
        heard = [narrow.until(finished(last)), wide.until(finished(last))]
    assert {event.data["session"] for event in heard[0]} == {session}
    assert [event for event in heard[1] if event.data["session"] == session] == heard[0]
    assert other in {event.data["session"] for event in heard[1]}


def test_a_session_that_is_not_there_cannot_be_listened_to(api: Server) -> None:
    assert told(api.http.get("/api/events", params={"session": "nosuch"})) == (404, "NOT_FOUND")


# --- going on -------------------------------------------------------------------------------------------------------


def test_a_listener_goes_on_behind_the_last_event_that_it_knows_also_after_a_restart(api: Server, session: str) -> None:
    with listening(api, session=session) as heard:
        first = heard.until(finished(api.say(session, "one", skill="echo")))
    missed = [api.say(session, text, skill="echo") for text in ("two", "three")]
    api.ended(missed[-1])
    api.restart()
    with listening(api, first[-1].id, session=session) as heard:
        assert heard.opening.startswith(":"), "there is nothing to begin anew"
        again = heard.until(finished(missed[-1]))
    with listening(api, 0, session=session) as heard:
        whole = heard.until(finished(missed[-1]))
    assert rows(first) + again == whole and len({event.id for event in whole}) == len(whole) == 6


def test_a_new_listener_hears_what_comes_and_not_what_was(api: Server, session: str) -> None:
    api.ask(session, "before", skill="echo")
    with listening(api, session=session) as heard:
        after = api.say(session, "after", skill="echo")
        assert {event.data["task_id"] for event in heard.until(finished(after))} == {after}


def test_a_listener_that_knows_what_nobody_ever_told_begins_anew(api: Server, session: str) -> None:
    with listening(api, 10**12, session=session) as heard:
        last = api.say(session, "x", skill="echo")
        reset, *events = heard.until(finished(last))
    assert reset == Event("reset", None, {})
    assert {event.data["task_id"] for event in events} == {last}


def test_rows_that_were_purged_are_a_reset_for_whoever_had_not_heard_them(api: Server, session: str) -> None:
    with listening(api, session=session) as heard:
        tasks = [api.say(session, text, skill="echo") for text in ("one", "two", "three")]
        ids = [event.id or 0 for event in heard.until(finished(tasks[-1]))]
    with closing(sqlite3.connect(api.data / "outrider.db", isolation_level=None)) as stranger:
        stranger.execute("delete from events where id <= ?", (ids[2],))
    with listening(api, ids[1], session=session) as heard:
        assert next(iter(heard)).name == "reset"
    with listening(api, ids[2], session=session) as heard:
        assert [event.id for event in heard.until(finished(tasks[-1]))] == ids[3:]


# --- several processes, and slow listeners --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def twin(api: Server) -> Iterator[Server]:
    """Another process that serves the same data."""
    env = {name: value for name, value in api.env.items() if name != "OUTRIDER_PORT"}
    with Server(api.data, env=env) as server:
        yield server


def test_two_processes_tell_the_same_under_the_same_ids(api: Server, twin: Server, session: str) -> None:
    with listening(api, session=session) as here, listening(twin, session=session) as there:
        for each in (api, twin, api):
            last = each.say(session, "hello", skill="echo")
        both = [rows(here.until(finished(last))), rows(there.until(finished(last)))]
    assert both[0] == both[1] and len(both[0]) == 6


@contextmanager
def not_reading(server: Server) -> Iterator[socket.socket]:
    """Somebody who asked for the events and then reads none of them."""
    with socket.socket() as listener:
        listener.settimeout(20)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.connect(("127.0.0.1", server.port))
        listener.sendall(f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        assert b": open" in receive(listener, b": open")
        yield listener


def receive(listener: socket.socket, last: bytes) -> bytes:
    """What comes, up to and with this."""
    came = b""
    while last not in came:
        piece = listener.recv(65536)
        assert piece, "it was closed"
        came += piece
    return came


def flood(server: Server, model: ScriptedModel, session: str) -> str:
    """More live text than all buffers on the way hold goes by whoever listens, and then a little more.

    Returns its turn's task, which has ended.
    """
    look = {"name": "memory_recall", "arguments": {"query": "anything"}}
    much = {"last_user": "much", "repeat": ("0123456789abcdef" * 256, 1024), "tool_calls": [look]}
    model.rules([much, {"last_tool": "", "text": "and the end"}, {"text": "short"}])
    with listening(server, session=session) as heard:
        task_id = server.say(session, "much")
        heard.until(finished(task_id))
    return task_id


def test_a_listener_that_reads_nothing_holds_up_nobody_and_misses_no_row_and_not_the_servers_end_either(
    twin: Server, model: ScriptedModel, session: str
) -> None:
    """Some of four megabytes of live text it may never get, but every event that was stored."""
    with not_reading(twin), not_reading(twin) as hanging, listening(twin, session=session) as heard:
        much = flood(twin, model, session)
        began = time.monotonic()
        last = twin.say(session, "now something short")
        told = rows(heard.until(finished(last)))
        assert time.monotonic() - began < 5
        came = receive(hanging, f'"task_id": "{last}", "origin": "user", "trigger": null, "state"'.encode()).decode()
        began = time.monotonic()
        assert twin.stop() == 0, "with another that has still read nothing"
        assert time.monotonic() - began < 10
    # Chunks of HTTP are framed by lines of their own.
    lines = [line for line in came.split("\n") if not line.strip() or line.startswith(("id: ", "event: ", "data: "))]
    events = Heard(iter(["", *(line.strip("\r") for line in lines), ""])).until(finished(last))
    assert len(told) == 4 and [event for event in rows(events) if event.data["session"] == session] == told
    of_much = [event for event in events if event.data.get("task_id") == much]
    assert [name for name, _ in itertools.groupby(event.name for event in of_much)] == [
        "turn.started",
        "turn.delta",
        "turn.finished",
    ]
    assert of_much[-2].data["text"] == "and the end", "what waited for it has not been overtaken by the turn's end"
