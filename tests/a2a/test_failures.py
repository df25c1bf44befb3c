"""What goes wrong inside: a client gets a task that it can find, or an error with an id, and never an exception's text."""

import json
import re
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.a2a import wire
from tests.a2a.conftest import asking
from tests.a2a.faulty import SECRET
from tests.a2a.wire import FAILED, message, said
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of


class FaultyServer(Server):
    module = "tests.a2a.faulty"


@pytest.fixture(scope="module")
def faulty(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyServer]:
    """A server whose handlers raise when they are told to, at their first try and for good."""
    settings = asking(shared_model) | {"OUTRIDER_MAX_ATTEMPTS": "1"}
    with FaultyServer(tmp_path_factory.mktemp("faulty") / "data", env=settings) as server:
        yield server


def assert_keeps_to_itself(text: str) -> None:
    """Nothing of the exception: not its text, nor a file's name, nor an address of a library, nor its type."""
    for leaked in (SECRET, "secret", "keys", "errors.example.org", "RuntimeError", "Traceback", ".py"):
        assert leaked not in text, text


BOOM = pytest.mark.parametrize("boom", ["handler boom", "late boom", "model boom"])


@BOOM
def test_a09_what_a_handler_raises_fails_a_task_that_can_be_found_and_is_told_to_nobody(
    faulty: FaultyServer, boom: str
) -> None:
    """A73: the answer has an id of the error, and the log has that id and the rest."""
    answer = wire.post(faulty, "SendMessage", {"message": said(boom)})
    task = wire.result(answer)["task"]
    assert task["status"]["state"] == FAILED and task["artifacts"] == []
    assert wire.get(faulty, task["id"]) == task
    session = faulty.http.get(f"/api/sessions/{task['contextId']}/messages").text
    for seen in (answer.text, session, json.dumps(faulty.task(task["id"]))):
        assert_keeps_to_itself(seen)
    (error_id,) = re.findall(r"[Ii]nternal error ([0-9a-f]+)", json.dumps(task["status"]))
    assert re.search(f"error {error_id}\\b", faulty.log()) and SECRET in faulty.log()


@BOOM
def test_a09_the_stream_of_such_a_task_is_the_task_and_its_failed_end(faulty: FaultyServer, boom: str) -> None:
    with wire.stream(faulty, "SendStreamingMessage", {"message": said(boom)}) as frames:
        first, *rest = frames
    assert rest[-1]["statusUpdate"]["status"]["state"] == FAILED
    assert first["task"]["id"] == rest[-1]["statusUpdate"]["taskId"]
    assert_keeps_to_itself(json.dumps([first, *rest]))


def test_a_console_hears_of_such_an_end_without_the_exceptions_text(faulty: FaultyServer) -> None:
    session = wire.fresh()
    faulty.post("/api/sessions", id=session)
    with faulty.http.stream("GET", "/api/events", params={"session": session}) as events:
        lines = events.iter_lines()
        next(lines)
        faulty.say(session, "handler boom")
        heard = []
        while "turn.finished" not in "".join(heard):
            heard.append(next(lines))
        heard.append(next(lines))
    assert_keeps_to_itself("".join(heard))


# --- the registry ---------------------------------------------------------------------------------------------------


@contextmanager
def full_disk(server: Server) -> Iterator[None]:
    """Every write of the server's to a file fails meanwhile, as on a disk without room."""
    limits = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, limits)


def test_a10_a_registry_that_refuses_every_write_is_an_error_within_the_deadline_and_leaves_no_task(
    faulty: FaultyServer,
) -> None:
    sent = message("to be kept")
    with wire.nothing_stored(faulty), full_disk(faulty):
        answers = [
            wire.post(faulty, "SendMessage", {"message": sent}),
            wire.post(faulty, "SendStreamingMessage", {"message": sent}),
        ]
        refused = faulty.http.post("/api/sessions/full/messages", json={"text": "hello"})
        assert faulty.http.get("/healthz").status_code == 200
        assert faulty.http.get("/api/background").json()["jobs"] == [], "what is there can still be read"
    for answer in answers:
        assert wire.told(answer) == (200, -32603, "INTERNAL_ERROR")
        assert re.fullmatch("Internal error [0-9a-f]{12}", wire.error(answer)["message"])
    assert refused.status_code == 503 and refused.headers["retry-after"]
    assert refused.json()["error"]["code"] == "STORAGE_UNAVAILABLE"
    assert answer_of(wire.send(faulty, sent)) == "to be kept", "and once there is room again it is taken"


def test_a11_a_start_that_fails_takes_the_whole_acceptance_with_it(faulty: FaultyServer) -> None:
    """The insert of the turn's run is refused by the database: no session, receipt, task or message is left."""
    session = wire.fresh()
    with closing(sqlite3.connect(faulty.data / "outrider.db", isolation_level=None)) as stranger:
        stranger.execute(
            "create trigger no_turns before insert on runs when new.kind = 'turn' "
            "begin select raise(abort, 'secret keys'); end"
        )
        try:
            with wire.nothing_stored(faulty):
                answer = wire.post(faulty, "SendMessage", {"message": message(contextId=session)})
                refused = faulty.http.post(f"/api/sessions/{session}/messages", json={"text": "hello"})
        finally:
            stranger.execute("drop trigger no_turns")
    assert wire.told(answer) == (200, -32603, "INTERNAL_ERROR")
    assert refused.status_code == 500 and refused.json()["error"]["code"] == "INTERNAL"
    for text in (answer.text, refused.text):
        assert_keeps_to_itself(text)
    assert faulty.http.get(f"/api/sessions/{session}").status_code == 404
