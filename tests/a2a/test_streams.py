"""Streams: the task first, then what came after it, and an end that is said; who reads one changes nothing."""

import time
from pathlib import Path

import pytest

from tests.a2a import wire
from tests.a2a.conftest import asking
from tests.a2a.wire import COMPLETED, SUBMITTED, WORKING, message, said
from tests.support.scripted import ScriptedModel
from tests.support.server import Process, Server, answer_of
from web import a2a_stream


class HastyServer(Server):
    module = "tests.a2a.hasty"


# --- shape ----------------------------------------------------------------------------------------------------------


def test_a43_a_stream_is_one_task_then_updates_the_last_of_them_an_end(shared: Server) -> None:
    frames = wire.streamed(shared, message("X"))
    kinds = [next(iter(frame)) for frame in frames]
    assert kinds[0] == "task" and set(kinds[1:]) == {"statusUpdate", "artifactUpdate"}
    ends = [frame["statusUpdate"]["status"]["state"] for frame in frames if "statusUpdate" in frame]
    assert ends[-1] == COMPLETED and COMPLETED not in ends[:-1] and "statusUpdate" in frames[-1]
    assert frames[0]["task"]["status"]["state"] in (SUBMITTED, WORKING)


def test_a43_the_stream_of_a_new_task_begins_with_its_beginning_however_soon_it_ends(shared: Server) -> None:
    for _ in range(20):
        first, *events = wire.streamed(shared, message("quick"))
        assert first["task"]["status"]["state"] == SUBMITTED and "artifacts" not in first["task"]
        states = [event["statusUpdate"]["status"]["state"] for event in events if "statusUpdate" in event]
        assert states == [WORKING, COMPLETED] and len(events) == 3


def test_a43_the_server_closes_a_stream_at_its_end(shared: Server) -> None:
    with wire.stream(shared, "SendStreamingMessage", {"message": message()}) as frames:
        assert "statusUpdate" in list(frames)[-1]
        began = time.monotonic()
        assert next(frames, None) is None and time.monotonic() - began < 2


def test_a44_a_streams_headers_and_task_come_while_the_agent_is_silent_and_no_proxy_holds_them(
    shared: Server, model: ScriptedModel
) -> None:
    model.rules([{"gate": "never"}])
    began = time.monotonic()
    with wire.stream(shared, "SendStreamingMessage", {"message": said()}) as frames:
        task = next(frames)["task"]
        assert time.monotonic() - began < 3
        headers = frames.response.headers
        assert headers["content-type"].startswith("text/event-stream")
        assert headers["cache-control"] == "no-store" and headers["x-accel-buffering"] == "no"
    wire.cancel(shared, task["id"])


def test_f058_the_first_task_and_the_events_after_it_are_the_task_that_get_shows(shared: Server) -> None:
    frames = wire.streamed(shared, message("the whole"))
    assert wire.replayed(frames) == wire.get(shared, frames[0]["task"]["id"])


def test_f059_a_last_event_id_asks_for_nothing_here(shared: Server, model: ScriptedModel) -> None:
    model.rules([{"gate": "g", "text": "x"}])
    task = wire.start(shared, said())
    request = {"jsonrpc": "2.0", "id": "one", "method": "SubscribeToTask", "params": {"id": task["id"]}}
    headers = wire.VERSION | {"Last-Event-ID": "5"}
    with shared.http.stream("POST", "/a2a", json=request, headers=headers) as response:
        frames = wire.Frames(response, rpc_id="one")
        assert next(frames)["task"]["id"] == task["id"]
        model.open("g")
        assert len(list(frames)) >= 2


def test_f063_all_streams_of_a_task_tell_the_same_and_one_that_leaves_is_not_missed(
    shared: Server, model: ScriptedModel
) -> None:
    model.rules([{"gate": "g", "text": "for all"}])
    task = wire.start(shared, said())
    model.held_at("g")
    with wire.subscribed(shared, task["id"]) as one, wire.subscribed(shared, task["id"]) as other:
        with wire.subscribed(shared, task["id"]) as leaving:
            assert next(leaving)["task"]["status"]["state"] == WORKING
        firsts = [next(one), next(other)]
        model.open("g")
        heard = [list(one), list(other)]
    assert firsts[0] == firsts[1] and heard[0] == heard[1]
    assert wire.replayed([firsts[0], *heard[0]]) == wire.get(shared, task["id"])


@pytest.mark.parametrize("end", ["ended", "unknown"])
def test_f062_an_ended_task_and_an_unknown_one_have_no_stream(shared: Server, end: str) -> None:
    task_id = wire.send(shared, message())["id"] if end == "ended" else "nope"
    answer = wire.post(shared, "SubscribeToTask", {"id": task_id})
    expected = (200, -32004, "UNSUPPORTED_OPERATION") if end == "ended" else (200, -32001, "TASK_NOT_FOUND")
    assert wire.told(answer) == expected


# --- who cuts, and what goes on -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "read"),
    [("SendStreamingMessage", 0), ("SendStreamingMessage", 300), ("SendMessage", 0)],
    ids=["before the first event", "after it", "while it waits"],
)
def test_a05_a_client_that_is_cut_off_changes_nothing_for_its_task(
    shared: Server, model: ScriptedModel, method: str, read: int
) -> None:
    model.rules([{"gate": "g", "text": "finished all the same"}])
    sent = said()
    with wire.torn(shared, method, sent, read):
        model.held_at("g")
    model.open("g")
    task = wire.start(shared, sent)
    assert answer_of(shared.ended(task["id"])) == "finished all the same"
    assert len(model.requests()) == 1


def test_a_place_in_a_stream_is_free_again_once_its_client_is_gone(tight: Server, model: ScriptedModel) -> None:
    model.rules([{"gate": "g"}])
    task = wire.start(tight, said())
    for _ in range(4):
        with wire.subscribed(tight, task["id"]) as frames:
            next(frames)
        tight.wait(lambda: "outrider_streams 0\n" in tight.http.get("/metrics").text)
    model.open("g")
    tight.ended(task["id"])


# --- ends of ours ---------------------------------------------------------------------------------------------------


def test_f060_a_stream_that_has_lasted_its_time_says_so_and_the_task_goes_on(
    impatient: Server, model: ScriptedModel
) -> None:
    model.rules([{"gate": "g", "text": "later"}])
    with wire.stream(impatient, "SendStreamingMessage", {"message": said()}) as frames:
        *before, last = frames
    error = last["error"]
    assert error["code"] == -32000 and error["data"][0]["reason"] == "STREAM_EXPIRED"
    assert not any("error" in frame for frame in before)
    model.open("g")
    assert answer_of(impatient.ended(before[0]["task"]["id"])) == "later"


def test_f057_each_limit_of_streams_names_itself_and_holds_up_no_send(tight: Server, model: ScriptedModel) -> None:
    model.rules([{"last_user": "^first|^second", "gate": "g", "text": "x"}])
    first, second = (wire.start(tight, said(text)) for text in ("first", "second"))
    with wire.subscribed(tight, first["id"]) as one:
        next(one)
        of_task = wire.post(tight, "SubscribeToTask", {"id": first["id"]})
        with wire.subscribed(tight, second["id"]) as other:
            next(other)
            with wire.nothing_stored(tight):
                of_user = wire.post(tight, "SendStreamingMessage", {"message": message()})
            assert answer_of(wire.send(tight, message("still"))) == "still"
    for answer, limit in [(of_task, "OUTRIDER_MAX_STREAMS_PER_TASK"), (of_user, "OUTRIDER_MAX_STREAMS_PER_USER")]:
        assert wire.told(answer) == (503, -32000, "STREAM_LIMIT_REACHED") and wire.retry_asked(answer)
        assert wire.info(answer) == {"limit": limit}
    model.open("g")
    for task in (first, second):
        tight.ended(task["id"])


def test_f057_the_limit_of_all_streams_names_itself(impatient: Server, model: ScriptedModel) -> None:
    model.rules([{"gate": "g"}])
    with wire.stream(impatient, "SendStreamingMessage", {"message": said()}) as frames:
        next(frames)
        with wire.nothing_stored(impatient):
            answer = wire.post(impatient, "SendStreamingMessage", {"message": message()})
    assert wire.told(answer) == (503, -32000, "STREAM_LIMIT_REACHED")
    assert wire.info(answer) == {"limit": "OUTRIDER_MAX_STREAMS"}
    model.open("g")


def test_f061_a_reader_that_reads_nothing_holds_up_nobody_and_loses_its_place_in_the_end(impatient: Server) -> None:
    """Its answer is larger than all buffers between; the only stream there is room for is free again after its time."""
    sent = message(parts=[{"data": "X" * 3_500_000}])
    with wire.torn(impatient, "SendStreamingMessage", sent):
        impatient.wait(lambda: "outrider_streams 1\n" in impatient.http.get("/metrics").text)
        assert answer_of(wire.send(impatient, message("meanwhile"))) == "meanwhile"
        impatient.wait(lambda: "outrider_streams 0\n" in impatient.http.get("/metrics").text)
    task = wire.start(impatient, sent)
    assert impatient.ended(task["id"])["status"]["state"] == COMPLETED


@pytest.fixture
def hasty(tmp_path: Path, shared_model: ScriptedModel, processes: list[Process]) -> Server:
    """A server that drops a stream after half a second in which its client does not read."""
    server = HastyServer(tmp_path / "data", env=asking(shared_model))
    processes.append(server)
    return server.start()


def test_f061_a_silent_stream_says_again_and_again_that_it_is_alive(hasty: Server, model: ScriptedModel) -> None:
    """Every 15 s as a rule, and every 2 s here."""
    assert a2a_stream.PING_S == 15
    model.rules([{"gate": "g", "text": "at last"}])
    with wire.stream(hasty, "SendStreamingMessage", {"message": said()}) as frames:
        first = [next(frames), next(frames)]
        began = time.monotonic()
        frames.comment()
        frames.comment()
        assert 1 < time.monotonic() - began < 15
        model.open("g")
        assert wire.replayed([*first, *frames])["artifacts"][0]["parts"] == [{"text": "at last"}]


def test_a40_who_stops_reading_is_dropped_with_a_word_found_on_reading_again_and_holds_up_nobody(
    hasty: Server, model: ScriptedModel
) -> None:
    """What it was sent is larger than all buffers between, and whole; another stream ends as if it were alone."""
    model.rules([{"gate": "g", "text": "for who reads"}])
    large = message(parts=[{"data": "X" * 3_500_000}])
    task = wire.start(hasty, said())
    with (
        wire.stream(hasty, "SendStreamingMessage", {"message": large}, buffer=65_536) as stopped,
        wire.subscribed(hasty, task["id"]) as reading,
    ):
        next(reading)
        began = time.monotonic()
        while "outrider_streams 1\n" not in hasty.http.get("/metrics").text:  # until the other is all that is left
            asked = time.monotonic()
            assert hasty.http.get("/.well-known/agent-card.json").is_success and time.monotonic() - asked < 1
            assert answer_of(wire.send(hasty, message("meanwhile"))) == "meanwhile"
            assert time.monotonic() - began < 20, hasty.log()
        model.open("g")
        assert wire.replayed([{"task": task}, *reading])["artifacts"][0]["parts"] == [{"text": "for who reads"}]
        first, *sent, last = stopped
    assert first["task"]["history"][0]["parts"] == large["parts"]
    assert last["error"]["data"][0]["reason"] == "STREAM_TOO_SLOW" and not any("error" in frame for frame in sent)
    assert not any(frame.get("statusUpdate", {}).get("status", {}).get("state") == COMPLETED for frame in sent)
    assert hasty.ended(first["task"]["id"])["artifacts"][0]["parts"] == large["parts"]
