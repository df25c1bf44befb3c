"""gRPC as a part of the house: who asks, how it starts and stops, and what becomes of who does not read."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.a2a import over_grpc, wire
from tests.a2a.bindings import Answer
from tests.a2a.conftest import asking
from tests.a2a.over_grpc import Grpc, served
from tests.a2a.test_streams import HastyServer
from tests.a2a.wire import COMPLETED, Json, message, said
from tests.access.people import Person, revoke, token_for
from tests.support.scripted import ScriptedModel
from tests.support.server import ROOT, Process, Server, answer_of, free_port

GRPC = Grpc()


# --- who asks ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that began with tokens in force."""
    data = tmp_path_factory.mktemp("guarded") / "data"
    token_for(data, "root")
    with Server(data, env=asking(shared_model) | served()) as server:
        yield server


@pytest.fixture(scope="module")
def alice(guarded: Server) -> Person:
    return Person(guarded, token_for(guarded.data, "alice"))


@pytest.fixture(scope="module")
def bob(guarded: Server) -> Person:
    return Person(guarded, token_for(guarded.data, "bob"))


def ask(person: Person, method: str, params: Json, **headers: str) -> Answer:
    return GRPC.ask(person.server, method, params, **person.headers, **headers)


@pytest.mark.parametrize("shown", ["", "Bearer tok-0123456789ab.nothing", "Basic x"])
def test_a60_who_shows_no_token_that_holds_is_told_so_whatever_is_asked(guarded: Server, shown: str) -> None:
    for method, params in (("ListTasks", {}), ("SendStreamingMessage", {"message": message()})):
        answer = GRPC.ask(guarded, method, params, **({"authorization": shown} if shown else {}))
        assert (answer.reason, answer.status) == ("UNAUTHENTICATED", 401)


def test_f075_a_token_is_its_user_and_what_is_anothers_does_not_exist(alice: Person, bob: Person) -> None:
    task = ask(alice, "SendMessage", {"message": message("hers", contextId="mine")}).task
    assert alice.rpc("GetTask", {"id": task["id"]})["result"] == task
    assert ask(alice, "ListTasks", {"contextId": "mine"}).result["totalSize"] == 1
    assert ask(bob, "GetTask", {"id": task["id"]}).said == ask(bob, "GetTask", {"id": "nobodys"}).said
    assert ask(bob, "ListTasks", {"contextId": "mine"}).result["tasks"] == []


def test_f076_a_share_opens_its_session_and_nothing_else(alice: Person, bob: Person) -> None:
    task, other = (ask(alice, "SendMessage", {"message": message(contextId=each)}).task for each in ("open", "shut"))
    share = alice.post("/api/sessions/open/shares").json()["token"]
    assert ask(bob, "GetTask", {"id": task["id"]}, **{"X-Share-Token": share}).result == task
    assert ask(bob, "GetTask", {"id": other["id"]}, **{"X-Share-Token": share}).reason == "TASK_NOT_FOUND"


@pytest.mark.parametrize("header", ["forwarded", "x-forwarded-for", "x-real-ip", "via"])
def test_a_call_that_was_forwarded_needs_a_token_though_none_exists(shared: Server, header: str) -> None:
    answer = GRPC.ask(shared, "ListTasks", {}, **{header: "for=192.0.2.1"})
    assert answer.reason == "UNAUTHENTICATED"


def test_a_stream_ends_with_the_token_that_opened_it(guarded: Server, model: ScriptedModel) -> None:
    model.rules([{"gate": "g", "text": "unheard"}])
    token = token_for(guarded.data, "alice")
    sent = over_grpc.message("SendStreamingMessage", {"message": said()})
    metadata = (*over_grpc.VERSION.items(), ("authorization", f"Bearer {token}"))
    with over_grpc.channel(guarded) as connection:
        told = over_grpc.call(connection, "SendStreamingMessage")(sent, metadata=metadata, timeout=20)
        frames = over_grpc.frames(told)
        assert "task" in next(frames)
        revoke(guarded.data, token)
        *_, last = frames
    assert last["error"][0]["reason"] == "UNAUTHENTICATED"
    model.open("g")


# --- how it starts and stops ------------------------------------------------------------------------------------------


def ended(data: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A start that is expected to end at once."""
    bare = {"PATH": os.environ["PATH"], "OUTRIDER_DATA": str(data), "OUTRIDER_PORT": str(free_port())}
    return subprocess.run(command, cwd=ROOT, env=bare | env, capture_output=True, text=True, timeout=60)


def test_a_port_that_is_taken_ends_the_start_with_the_settings_name(shared: Server, tmp_path: Path) -> None:
    taken = shared.env["OUTRIDER_GRPC_PORT"]
    start = ended(tmp_path / "data", sys.executable, "-m", "web.cli", "serve", OUTRIDER_GRPC_PORT=taken)
    assert start.returncode == 2
    assert f"outrider: OUTRIDER_GRPC_PORT: cannot listen on 127.0.0.1:{taken}" in start.stderr


def test_a_missing_extra_ends_the_start_with_the_command_that_installs_it(tmp_path: Path) -> None:
    """A module that is None in `sys.modules` is one that cannot be found."""
    hidden = "import sys; sys.modules['grpc'] = None; from web.cli import main"
    program = f"{hidden}; sys.argv = ['outrider', 'serve']; main()"
    start = ended(tmp_path / "data", sys.executable, "-c", program, **served())
    assert start.returncode == 2 and not (tmp_path / "data" / "outrider.db").exists()
    (line,) = start.stderr.splitlines()
    assert line.startswith("outrider: OUTRIDER_GRPC_PORT: ") and "pip install" in line and "[grpc]" in line


def test_at_sigterm_sends_are_refused_reads_go_on_and_what_waits_is_told(
    own: Callable[..., Server], model: ScriptedModel
) -> None:
    model.rules([{"gate": "never", "text": "too late"}])
    server = own(**served(), OUTRIDER_SHUTDOWN_GRACE_S="2")
    request = over_grpc.message("SendMessage", {"message": said("blocking")})
    asked: Any = {"metadata": tuple(over_grpc.VERSION.items()), "timeout": 20}
    with (
        over_grpc.channel(server) as connection,
        GRPC.stream(server, "SendStreamingMessage", {"message": said("streaming")}) as frames,
    ):
        task = next(frames)["task"]
        blocking: Any = over_grpc.call(connection, "SendMessage").future(request, **asked)
        server.wait(lambda: "outrider_waiting_requests 1\n" in server.http.get("/metrics").text)
        os.kill(server.pid, signal.SIGTERM)
        server.wait(lambda: GRPC.ask(server, "SendMessage", {"message": message()}).reason == "WORKER_UNAVAILABLE")
        assert GRPC.ask(server, "GetTask", {"id": task["id"]}).result["id"] == task["id"]
        *_, last = frames
        assert last["error"][0]["reason"] == "STREAM_EXPIRED"
        assert over_grpc.refused(blocking.exception()).reason == "BLOCKING_DEADLINE_EXCEEDED"
        assert server.stop() == 0
    assert "Traceback" not in server.log() and "Unexpected" not in server.log()


# --- who does not read ------------------------------------------------------------------------------------------------


def test_a40_f061_who_stops_reading_is_dropped_with_a_status_found_on_reading_again_and_holds_up_nobody(
    shared_model: ScriptedModel, tmp_path: Path, processes: list[Process]
) -> None:
    """What it was sent is larger than all buffers between, and whole; others are answered meanwhile."""
    server = HastyServer(tmp_path / "data", env=asking(shared_model) | served())
    processes.append(server)
    server.start()
    sent = message(parts=[{"data": "X" * 3_500_000}])
    request = over_grpc.message("SendStreamingMessage", {"message": sent})
    narrow = ("grpc.http2.lookahead_bytes", 65_536), ("grpc.http2.bdp_probe", 0)
    with over_grpc.channel(server, *narrow) as connection:
        asked: Any = {"metadata": tuple(over_grpc.VERSION.items()), "timeout": 60}
        told = over_grpc.call(connection, "SendStreamingMessage")(request, **asked)
        server.wait(lambda: "outrider_streams 1\n" in server.http.get("/metrics").text)
        began = time.monotonic()
        while "outrider_streams 0\n" not in server.http.get("/metrics").text:
            assert answer_of(GRPC.ask(server, "SendMessage", {"message": message("meanwhile")}).task) == "meanwhile"
            assert time.monotonic() - began < 20, server.log()
        first, *_, last = over_grpc.frames(told)
    assert first["task"]["history"][0]["parts"] == sent["parts"]
    assert last["error"][0]["reason"] == "STREAM_TOO_SLOW"
    assert server.ended(first["task"]["id"])["status"]["state"] == COMPLETED
    assert wire.get(server, first["task"]["id"])["artifacts"][0]["parts"] == sent["parts"]
