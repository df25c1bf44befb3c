"""What answers a send, what a stream tells and what Get shows are one thing, and it is committed before anybody hears of it."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from background import terminal
from background.database import Tx
from background.errors import StorageUnavailable
from background.queue import Run
from background.terminal import Outcome
from tests.a2a import wire
from tests.a2a.wire import COMPLETED, WORKING, Json, message
from tests.support.inside import Inside, Ticking, openai_model
from tests.support.server import Server, answer_of
from tests.support.trial import Trial

MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("agreement-trial"))


@pytest.fixture(scope="module")
def server(trial: Trial, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose plugin does what a message says."""
    with Server(trial.data(tmp_path_factory.mktemp("agreement") / "data"), env=trial.env()) as server:
        yield server


def asked(*commands: str) -> Json:
    return message("; ".join(commands), skill="trial")


def answered_and_read(server: Server) -> tuple[str, str, Json]:
    """A task as a blocking send brought it and as Get shows it right afterwards, both as they were written; and what it is."""
    answer = wire.post(server, "SendMessage", {"message": asked("many 19", "echo X")})
    task = wire.result(answer)["task"]
    read = wire.post(server, "GetTask", {"id": task["id"]})
    return (
        written(answer.text, '{"jsonrpc":"2.0","id":"SendMessage","result":{"task":', "}}"),
        written(read.text, '{"jsonrpc":"2.0","id":"GetTask","result":', "}"),
        task,
    )


def written(text: str, before: str, after: str) -> str:
    assert text.startswith(before) and text.endswith(after), text[:200]
    return text[len(before) : -len(after)]


@pytest.mark.parametrize("times", [60, pytest.param(500, marks=pytest.mark.slow)])
def test_a04_a_blocking_answer_is_byte_for_byte_what_get_shows_with_all_its_artifacts(
    server: Server, times: int
) -> None:
    """Under load: eight at a time."""
    with ThreadPoolExecutor(8) as pool:
        pairs = list(pool.map(lambda _: answered_and_read(server), range(times)))
    for answer, read, task in pairs:
        assert answer == read
        assert task["status"]["state"] == COMPLETED and len(task["artifacts"]) == 20
    assert "Internal error" not in server.log()


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    """An Outrider in this process, so that a commit of its can be made to fail."""
    inside = Inside(tmp_path / "inside", openai_model("http://127.0.0.1:9"), Ticking(), profiles="echo,chat").start()
    yield inside
    inside.close()


def test_a07_an_end_that_cannot_be_committed_is_told_nowhere_until_it_is(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, tries, mended = terminal.settle, [], threading.Event()

    def settle_once_mended(tx: Tx, run: Run, outcome: Outcome) -> bool:
        settled = settle(tx, run, outcome)
        tries.append(settled)
        if not mended.is_set():
            raise StorageUnavailable("disk I/O error")
        return settled

    monkeypatch.setattr(terminal, "settle", settle_once_mended)
    with wire.stream(inside, "SendStreamingMessage", {"message": message("X")}) as frames:
        first = next(frames)
        inside.wait(lambda: len(tries) > 1)
        unfinished = wire.get(inside, first["task"]["id"])
        assert unfinished["status"]["state"] == WORKING and "artifacts" not in unfinished
        mended.set()
        told = [first, *frames]
    states = [frame["statusUpdate"]["status"]["state"] for frame in told if "statusUpdate" in frame]
    assert states == [WORKING, COMPLETED] and tries[-1] is True
    assert wire.replayed(told) == wire.get(inside, first["task"]["id"])


def test_a05_a_client_that_is_cut_off_in_the_middle_of_the_last_event_changes_nothing(server: Server) -> None:
    sent = asked("big 3000000")
    with wire.torn(server, "SendStreamingMessage", sent, read=100_000):
        pass
    task = server.ended(wire.start(server, sent)["id"])
    assert task["status"]["state"] == COMPLETED and len(answer_of(task)) == 3_000_000


def test_f054_fifty_clients_that_are_cut_off_leave_fifty_tasks_that_complete(server: Server, trial: Trial) -> None:
    methods = ["SendMessage", "SendStreamingMessage"] * 25
    sent = [asked("wait f054", f"echo {number}") for number in range(50)]
    with ExitStack() as clients:
        for method, each in zip(methods, sent, strict=True):
            clients.enter_context(wire.torn(server, method, each))
        server.wait(lambda: "outrider_waiting_requests 25\n" in server.http.get("/metrics").text)
        server.wait(lambda: "outrider_streams 25\n" in server.http.get("/metrics").text)
    trial.open("f054")
    tasks = [server.ended(wire.start(server, each)["id"]) for each in sent]
    assert [answer_of(task) for task in tasks] == [str(number) for number in range(50)]
    assert {task["status"]["state"] for task in tasks} == {COMPLETED}


def test_a46_a_body_that_comes_in_chunks_is_read_before_the_stream_begins(server: Server) -> None:
    sent = message(parts=[{"data": "X" * (2 * MEGABYTE)}])
    body = json.dumps({"jsonrpc": "2.0", "id": "c", "method": "SendStreamingMessage", "params": {"message": sent}})
    chunks = (body[start : start + 65_536].encode() for start in range(0, len(body), 65_536))
    began = time.monotonic()
    with server.http.stream("POST", "/a2a", content=chunks, headers=wire.VERSION) as response:
        frames = wire.Frames(response, "c")
        assert "task" in next(frames) and time.monotonic() - began < 5
        assert list(frames)[-1]["statusUpdate"]["status"]["state"] == COMPLETED


def test_a46_a_stream_that_is_asked_for_in_no_json_is_an_error_in_json(server: Server) -> None:
    answer = server.http.post("/a2a", content=iter([b'{"jsonrpc": "2.0", ', b'"id": 1']), headers=wire.VERSION)
    assert wire.told(answer) == (200, -32700, "JSON_PARSE")


def test_a40_while_one_reader_reads_nothing_twenty_other_tasks_end_and_their_streams_too(server: Server) -> None:
    """What it does not read is larger than all buffers between; when it reads again it has everything, or a last word."""
    large = message(parts=[{"data": "X" * 3_500_000}])
    with wire.stream(server, "SendStreamingMessage", {"message": large}, buffer=65_536) as stopped:
        server.wait(lambda: "outrider_streams 1\n" in server.http.get("/metrics").text)
        with ThreadPoolExecutor(20) as pool:
            sends = [pool.submit(wire.send, server, message(f"answer {number}")) for number in range(10)]
            streams = [pool.submit(wire.streamed, server, message(f"stream {number}")) for number in range(10)]
            assert [answer_of(send.result()) for send in sends] == [f"answer {number}" for number in range(10)]
            assert all(stream.result()[-1]["statusUpdate"]["status"]["state"] == COMPLETED for stream in streams)
        first, *_, last = stopped
    dropped = "error" in last and last["error"]["data"][0]["reason"] == "STREAM_TOO_SLOW"
    assert dropped or last["statusUpdate"]["status"]["state"] == COMPLETED
    assert server.ended(first["task"]["id"])["artifacts"][0]["parts"] == large["parts"]


@pytest.mark.slow
def test_a40_a_reader_that_stops_while_three_thousand_pieces_are_told_holds_up_neither_them_nor_who_reads(
    server: Server, trial: Trial
) -> None:
    pieces = ["fragment " + "x" * 300] * 3000
    task = wire.start(server, asked("wait a40", *pieces))
    with (
        wire.subscribed(server, task["id"]) as reading,
        wire.stream(server, "SubscribeToTask", {"id": task["id"]}, buffer=65_536) as stopped,
    ):
        heard = [next(reading)]
        trial.open("a40")
        while "artifactUpdate" not in heard[-1] or not heard[-1]["artifactUpdate"].get("lastChunk"):
            heard.append(next(reading))
            if len(heard) % 100 == 0:
                began = time.monotonic()
                assert server.http.get("/.well-known/agent-card.json").is_success and time.monotonic() - began < 2
        heard += reading
        first, *_, last = stopped
    whole = wire.get(server, task["id"])
    assert wire.replayed(heard) == whole and len(answer_of(whole)) == 3000 * 301 - 1
    assert first["task"]["id"] == task["id"]
    assert "statusUpdate" in last or last["error"]["data"][0]["reason"] == "STREAM_TOO_SLOW"
