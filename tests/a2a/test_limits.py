"""What is used up, too large or too much work: refused by name, with nothing stored, and nobody else waits for it."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.a2a import wire
from tests.a2a.wire import message, said
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of

MEGABYTE = 1024 * 1024
BODY_LIMIT = 4 * MEGABYTE


@pytest.fixture(autouse=True)
def nothing_left(tight: Server, model: ScriptedModel) -> Iterator[None]:
    """What a test has left open is ended, so that the next one finds all the room there is."""
    yield
    model.rules([])
    tight.wait(lambda: runs(tight) == 0)


def runs(server: Server) -> int:
    """How many turns have not ended."""
    queue = server.get("/api/status")["queue"]
    return sum(row["queued"] + row["waiting"] + row["running"] for row in queue if row["kind"] == "turn")


def gauge(server: Server, name: str) -> int:
    (line,) = [line for line in server.http.get("/metrics").text.splitlines() if line.startswith(f"{name} ")]
    return int(float(line.split()[1]))


def test_f055_one_waiting_request_more_than_there_is_room_for_is_refused_and_a_client_that_leaves_makes_room(
    tight: Server, model: ScriptedModel
) -> None:
    model.rules([{"gate": "g", "text": "at last"}])
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(wire.send, tight, said())
        with wire.torn(tight, "SendMessage", said()):
            tight.wait(lambda: gauge(tight, "outrider_waiting_requests") == 2)
        tight.wait(lambda: gauge(tight, "outrider_waiting_requests") == 1)
        second = pool.submit(wire.send, tight, said())
        model.wait_for(lambda asked: len(asked) == 3)  # both of those who wait, and the task of the one that left
        with wire.nothing_stored(tight):
            answer = wire.post(tight, "SendMessage", {"message": message()})
        assert wire.told(answer) == (503, -32000, "WAITING_LIMIT_REACHED") and wire.retry_asked(answer)
        assert wire.info(answer) == {"limit": "OUTRIDER_MAX_WAITING_REQUESTS"}
        model.open("g")
        assert [answer_of(future.result()) for future in (first, second)] == ["at last"] * 2


def test_f056_of_twenty_at_once_as_many_are_taken_as_may_be_open_and_an_end_makes_room(
    tight: Server, model: ScriptedModel
) -> None:
    model.rules([{"gate": "g", "text": "x"}])

    def one(_: int) -> httpx.Response:
        return wire.post(tight, "SendMessage", {"message": said(), "configuration": {"returnImmediately": True}})

    before = wire.rows(tight)
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(one, range(20)))
    refused = [answer for answer in answers if "error" in answer.json()]
    assert Counter(map(wire.told, refused)) == {(503, -32000, "OPEN_TASKS_LIMIT_REACHED"): 17}
    assert all(wire.retry_asked(answer) for answer in refused)
    assert {wire.info(answer)["limit"] for answer in refused} == {"OUTRIDER_MAX_OPEN_TASKS_PER_USER"}
    after = wire.rows(tight)
    assert {name: after[name] - before[name] for name in ("tasks", "receipts", "sessions", "messages", "runs")} == {
        "tasks": 3,
        "receipts": 3,
        "sessions": 3,
        "messages": 3,
        "runs": 3,
    }
    model.open("g")
    for answer in answers:
        if "result" in answer.json():
            tight.ended(wire.result(answer)["task"]["id"])
    assert answer_of(wire.send(tight, message("room again"))) == "room again"


# --- size -----------------------------------------------------------------------------------------------------------


def oversized(chunked: bool) -> Iterator[bytes] | bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"x": "y" * BODY_LIMIT}}).encode()
    return iter([body[start : start + 65536] for start in range(0, len(body), 65536)]) if chunked else body


@pytest.mark.parametrize("chunked", [False, True], ids=["by its length", "in chunks"])
def test_a84_a_body_over_the_limit_is_refused_in_the_bindings_own_form(shared: Server, chunked: bool) -> None:
    with wire.nothing_stored(shared):
        answer = shared.http.post("/a2a", content=oversized(chunked), headers=wire.VERSION)
    assert wire.told(answer) == (200, -32600, "REQUEST_TOO_LARGE")
    answer = shared.http.post("/api/sessions", content=oversized(chunked))
    assert answer.status_code == 413 and answer.json()["error"]["code"] == "TOO_LARGE"


def test_a84_a_body_of_almost_the_limit_is_read(shared: Server) -> None:
    data = {"x": "y" * (BODY_LIMIT - 4096)}
    task = wire.send(shared, message(parts=[{"data": data}]))
    assert task["artifacts"][0]["parts"] == [{"data": data}]


@pytest.mark.parametrize("depth", [33, 101, 5000, 100_000])
def test_a85_data_that_is_nested_too_deep_is_refused_by_the_field_that_it_is_in(shared: Server, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    sent = json.dumps(message(parts=[{"data": "HERE"}])).replace('"HERE"', nested)
    body = f'{{"jsonrpc": "2.0", "id": "deep", "method": "SendMessage", "params": {{"message": {sent}}}}}'
    with wire.nothing_stored(shared):
        answer = shared.http.post("/a2a", content=body, headers=wire.VERSION)
    assert wire.told(answer) == (200, -32602, "INVALID_PARAMS")


def test_a85_ten_megabytes_of_structured_data_hold_up_nobody(shared: Server) -> None:
    """The agent card is asked for all the while, and stays quick; a loose bound, as this is no benchmark."""
    data = [{"name": "x" * 200, "values": [number, number / 3, None, True]} for number in range(4_200)]
    assert len(json.dumps(data)) > MEGABYTE
    at_once = {"historyLength": 0, "returnImmediately": True}
    params = [{"message": message(parts=[{"data": data}]), "configuration": at_once} for _ in range(10)]
    waits: list[float] = []
    with ThreadPoolExecutor(10) as pool:
        sends = [pool.submit(wire.post, shared, "SendMessage", each) for each in params]
        while not all(send.done() for send in sends):
            began = time.monotonic()
            assert shared.http.get("/.well-known/agent-card.json").status_code == 200
            waits.append(time.monotonic() - began)
    ids = [wire.result(send.result())["task"]["id"] for send in sends]
    assert sorted(waits)[int(len(waits) * 0.9)] < 1.0, sorted(waits)
    assert shared.ended(ids[-1])["artifacts"][0]["parts"] == [{"data": data}]
