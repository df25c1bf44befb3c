"""Streams of answers that come in pieces: wherever a client comes in, and whoever serves it, it ends with what Get shows."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.a2a import wire
from tests.a2a.wire import CANCELED, COMPLETED, FAILED, Json, message
from tests.support.server import Process, Server
from tests.support.trial import Trial

PIECES = 40
ROOM = {
    "OUTRIDER_MAX_STREAMS": "4000",
    "OUTRIDER_MAX_STREAMS_PER_USER": "4000",
    "OUTRIDER_MAX_STREAMS_PER_TASK": "4000",
}


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("pieces-trial"))


@pytest.fixture(scope="module")
def server(trial: Trial, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server and worker whose plugin tells pieces, with room for many streams."""
    with Server(trial.data(tmp_path_factory.mktemp("pieces") / "data"), env=trial.env(**ROOM)) as server:
        yield server


@pytest.fixture(scope="module")
def neighbor(server: Server, trial: Trial) -> Iterator[Server]:
    """A second process on the same data, which works on nothing."""
    with Server(server.data, "--no-worker", env=trial.env(**ROOM)) as neighbor:
        yield neighbor


def asked(*commands: str) -> Json:
    return message("; ".join(commands), skill="trial")


def piecemeal(count: int) -> list[str]:
    """Commands that tell so many pieces, with time in between for others to come in."""
    return [command for number in range(count) for command in (f"fragment piece {number}, ", "sleep 0.01")]


def text_of(task: Json) -> str:
    return "".join(part["text"] for artifact in task.get("artifacts", [])[:1] for part in artifact["parts"])


def said(frame: Json) -> str:
    """The text of a piece or an artifact; empty for a frame that has none."""
    artifact = frame.get("artifactUpdate", {}).get("artifact", {"parts": []})
    return "".join(part["text"] for part in artifact["parts"])


# --- at any moment --------------------------------------------------------------------------------------------------


async def told(http: httpx.AsyncClient, method: str, params: Json) -> AsyncIterator[Json]:
    """The frames of a stream: results, or the one envelope of an error."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with http.stream("POST", "/a2a", json=request, headers=wire.VERSION) as response:
        if not response.headers["content-type"].startswith("text/event-stream"):
            yield json.loads(await response.aread())
        else:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line[6:]).get("result") or json.loads(line[6:])


async def subscribed(http: httpx.AsyncClient, task_id: str, leaves_after: int = 10**9) -> list[Json]:
    """What one subscription brought until its end, or until it was left."""
    frames: list[Json] = []
    async with aclosing(told(http, "SubscribeToTask", {"id": task_id})) as stream:  # type: ignore[type-var]
        async for frame in stream:
            frames.append(frame)
            if len(frames) >= leaves_after:
                break
    return frames


async def fickle(http: httpx.AsyncClient, task_id: str, chance: random.Random) -> list[Json]:
    """A client that loses its stream again and again and comes back; what its last stream brought."""
    had = ""
    while True:
        frames = await subscribed(http, task_id, leaves_after=chance.randint(1, 12))
        if "task" not in frames[0]:
            return frames
        first = text_of(frames[0]["task"])
        assert first.startswith(had) or first.replace("\n", "").startswith(had), (had, first)
        had = text_of(wire.replayed(frames))
        if frames[-1].get("statusUpdate", {}).get("status", {}).get("state") == COMPLETED:
            return frames


async def coming_in(server: Server, count: int, *, loyal: bool) -> tuple[str, list[list[Json]]]:
    """A task of many pieces, and so many clients that come in at moments of their own. Its id, and what each has heard."""
    chance = random.Random(count)
    comes = Counter(chance.randrange(PIECES) for _ in range(count))
    commands = [*piecemeal(PIECES), "many 3"]
    clients: list[asyncio.Task[list[Json]]] = []
    heard: list[Json] = []
    options: dict[str, Any] = {"timeout": 60, "trust_env": False, "limits": httpx.Limits(max_connections=None)}
    async with httpx.AsyncClient(base_url=server.url, **options) as http:
        async for frame in told(http, "SendStreamingMessage", {"message": asked(*commands)}):
            heard.append(frame)
            task_id = heard[0]["task"]["id"]
            for _ in range(comes[len(heard)]):
                coming = subscribed(http, task_id) if loyal else fickle(http, task_id, chance)
                clients.append(asyncio.create_task(coming))
        return heard[0]["task"]["id"], [heard, *await asyncio.gather(*clients)]


def agreed(server: Server, task_id: str, heard: list[list[Json]]) -> int:
    """Every stream ended with what Get shows, or had not begun before the end. Returns how many began in the middle."""
    whole = wire.get(server, task_id)
    assert whole["status"]["state"] == COMPLETED and len(whole["artifacts"]) == 4
    began = 0
    for frames in heard:
        if "error" in frames[0]:
            assert frames[0]["error"]["code"] == -32004 and len(frames) == 1
            continue
        assert wire.replayed(frames) == whole
        began += bool(text_of(frames[0]["task"]))
    return began


def test_f058_a_stream_that_begins_at_any_moment_ends_with_the_task_that_get_shows(server: Server) -> None:
    task_id, heard = asyncio.run(coming_in(server, 100, loyal=True))
    assert agreed(server, task_id, heard) > 5


def test_a36_whoever_loses_a_stream_finds_on_a_new_one_all_that_was_told_and_the_rest(server: Server) -> None:
    task_id, heard = asyncio.run(coming_in(server, 25, loyal=False))
    agreed(server, task_id, heard)


@pytest.mark.slow
def test_f058_a_thousand_streams_that_begin_at_any_moment(server: Server, neighbor: Server) -> None:
    began = 0
    for serving in (server, neighbor) * 5:
        task_id, heard = asyncio.run(coming_in(serving, 100, loyal=True))
        began += agreed(serving, task_id, heard)
    assert began > 200


# --- for everybody --------------------------------------------------------------------------------------------------


def test_a39_streams_of_two_processes_tell_the_same_and_who_leaves_or_comes_late_changes_nothing(
    server: Server, neighbor: Server, trial: Trial
) -> None:
    task = wire.start(server, asked("wait a", "fragment one, ", "fragment two, ", "wait b", "fragment three", "wait c"))
    with (
        wire.subscribed(server, task["id"]) as here,
        wire.subscribed(neighbor, task["id"]) as there,
        wire.subscribed(neighbor, task["id"]) as leaving,
    ):
        assert next(here)["task"]["id"] == next(there)["task"]["id"] == next(leaving)["task"]["id"]
        trial.open("a")
        heard = [until_said(here, "two, "), until_said(there, "two, ")]
        until_said(leaving, "one, ")
        leaving.response.close()
        with wire.subscribed(neighbor, task["id"]) as late:
            assert text_of(next(late)["task"]) == "one, two, "
            trial.open("b")
            tails = [until_said(stream, "three") for stream in (here, there, late)]
            trial.open("c")
            tails = [[*tail, *stream] for tail, stream in zip(tails, (here, there, late), strict=True)]
    assert heard[0][-2:] == heard[1][-2:]  # who came in before the worker has heard of that too
    assert tails[0] == tails[1] == tails[2] and tails[0][-1]["statusUpdate"]["status"]["state"] == COMPLETED


def until_said(stream: wire.Frames, text: str) -> list[Json]:
    frames: list[Json] = []
    while not frames or said(frames[-1]) != text:
        frames.append(next(stream))
    return frames


def test_a13_the_first_piece_of_an_artifact_begins_it_and_no_two_answers_of_a_context_share_one(server: Server) -> None:
    context = wire.fresh("ctx")
    ids: list[str] = []
    for _ in range(3):
        frames = wire.streamed(server, asked("fragment a", "fragment b", "many 2") | {"contextId": context})
        updates = [frame["artifactUpdate"] for frame in frames if "artifactUpdate" in frame]
        seen: set[str] = set()
        for update in updates:
            assert update["artifact"]["artifactId"] in seen or not update.get("append")
            seen.add(update["artifact"]["artifactId"])
        assert len(seen) == 3
        assert wire.replayed(frames) == wire.get(server, frames[0]["task"]["id"])
        ids += seen
    assert len(set(ids)) == 9


PARKED = "TASK_STATE_INPUT_REQUIRED"


def test_f060_a_stream_that_begins_at_a_question_stays_for_what_comes_next_and_ends_where_the_next_is_asked(
    server: Server,
) -> None:
    task = wire.send(server, asked("ask One?", "fragment Thanks. ", "ask Two?", "echo end"))
    assert task["status"]["state"] == PARKED
    with wire.subscribed(server, task["id"]) as stream:
        frames = [next(stream)]
        assert frames[0]["task"] == task
        wire.send(server, message("first", None, taskId=task["id"]))
        frames += stream
    again = wire.get(server, task["id"])
    assert again["status"]["message"]["parts"] == [{"text": "Two?"}]
    assert wire.replayed(frames) | {"history": again["history"]} == again and said(frames[2]) == "Thanks. "
    with wire.subscribed(server, task["id"]) as stream:
        frames = [next(stream)]
        ended = wire.send(server, message("second", None, taskId=task["id"]))
        frames += stream
    assert frames[0]["task"] == again and wire.replayed(frames) | {"history": ended["history"]} == ended
    assert text_of(ended) == "first\nThanks. \nsecond\nend"


# --- ends without an answer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [FAILED, CANCELED, COMPLETED])
def test_where_no_answer_follows_its_pieces_get_shows_what_the_stream_has_told(
    server: Server, trial: Trial, how: str
) -> None:
    ends = {FAILED: "boom x", CANCELED: "sleep 60", COMPLETED: "nothing"}
    door = wire.fresh("door")
    sent = asked("fragment One, ", "fragment two", f"wait {door}", ends[how])
    with wire.stream(server, "SendStreamingMessage", {"message": sent}) as stream:
        frames = until_said(stream, "two")
        assert text_of(wire.get(server, frames[0]["task"]["id"])) == "One, two"
        trial.open(door)
        if how == CANCELED:
            wire.cancel(server, frames[0]["task"]["id"])
        frames += stream
    task = wire.get(server, frames[0]["task"]["id"])
    assert task["status"]["state"] == how and text_of(task) == "One, two"
    assert wire.replayed(frames) == task


@pytest.mark.slow
def test_after_a_crash_the_answer_is_told_anew_and_until_then_what_was_told_stands(
    trial: Trial, tmp_path: Path, processes: list[Process]
) -> None:
    data = trial.data(tmp_path / "data")
    serving = Server(data, "--no-worker", env=trial.env(**ROOM))
    worker = Process(data, "worker", env=trial.env(OUTRIDER_LEASE_S="1"))
    processes += [serving, worker]
    serving.start()
    worker.start()
    serving.wait(lambda: serving.http.get("/readyz").is_success)
    door = wire.fresh("door")
    sent = asked("fragment One, ", "fragment two", f"wait {door}", "fragment , three")
    with wire.stream(serving, "SendStreamingMessage", {"message": sent}) as stream:
        frames = until_said(stream, "two")
        worker.kill()
        task_id = frames[0]["task"]["id"]
        assert text_of(wire.get(serving, task_id)) == "One, two"
        worker.start()
        again = until_said(stream, "two")
        assert [update["artifactUpdate"].get("append", False) for update in again if said(update)] == [False, True]
        trial.open(door)
        frames += [*again, *stream]
    assert wire.replayed(frames) == wire.get(serving, task_id)


@pytest.mark.parametrize("where", ["server", "neighbor"])
def test_a_stream_whose_task_is_erased_ends_and_says_so(
    server: Server, neighbor: Server, where: str, trial: Trial
) -> None:
    door = wire.fresh("door")
    task = wire.start(server, asked("fragment One", f"wait {door}"))
    with wire.subscribed({"server": server, "neighbor": neighbor}[where], task["id"]) as stream:
        assert next(stream)["task"]["id"] == task["id"]
        erased = server.http.delete(f"/api/sessions/{task['contextId']}/tasks/{task['id']}")
        assert erased.status_code == 202, server.log()[-3000:]
        *before, last = stream
    assert last["error"]["code"] == -32001 and last["error"]["data"][0]["reason"] == "TASK_NOT_FOUND"
    assert not any("error" in frame for frame in before)
    trial.open(door)


def test_a_send_that_waits_for_a_task_that_is_erased_is_told_so(server: Server, trial: Trial) -> None:
    door = wire.fresh("door")
    sent = asked(f"wait {door}") | {"contextId": wire.fresh("erased")}
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wire.post, server, "SendMessage", {"message": sent})
        server.wait(lambda: "outrider_waiting_requests 1\n" in server.http.get("/metrics").text)
        task = wire.start(server, sent)
        erased = server.http.delete(f"/api/sessions/{task['contextId']}/tasks/{task['id']}")
        assert erased.status_code == 202, server.log()[-3000:]
        assert wire.told(waiting.result()) == (200, -32001, "TASK_NOT_FOUND")
    trial.open(door)
