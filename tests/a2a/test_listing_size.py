"""ListTasks has a bound in bytes: a page of large tasks ends early, and what is on none is not read (F070, F180)."""

import json
from typing import Any

import grpc
import pytest

from tests.a2a import over_grpc, wire
from tests.a2a.over_grpc import Grpc
from tests.a2a.wire import Json, fresh, message
from tests.support.server import Server
from web.a2a_list import PAGE_BYTES
from web.api_sessions import LOG_BYTES


@pytest.fixture(scope="module")
def large(shared: Server) -> str:
    """A context of five tasks, of which each has 900 kB in its history and in its artifact, and one small one."""
    context = fresh("ctx")
    for text in (*["x" * 900_000] * 5, "small"):
        wire.send(shared, message(text, contextId=context), historyLength=0)
    return context


def usual(server: Server) -> grpc.Channel:
    """A gRPC client with the limit that it has where nothing is said, 4 MiB an answer."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.insecure_channel(f"127.0.0.1:{server.env['OUTRIDER_GRPC_PORT']}", options=own)


def listed(server: Server, **asked: Any) -> Json:
    return wire.result(wire.post(server, "ListTasks", asked))


def walk(server: Server, **asked: Any) -> list[list[Json]]:
    """The tasks of all pages; no page is larger than it may be."""
    pages, token = [], ""
    while True:
        page = listed(server, **asked, pageToken=token)
        assert len(json.dumps(page["tasks"])) < PAGE_BYTES and page["totalSize"] == 6
        pages.append(page["tasks"])
        if not (token := page["nextPageToken"]):
            return pages


@pytest.mark.parametrize(
    ("shown", "sizes"),
    [
        ({}, [4, 2]),
        ({"historyLength": 1}, [4, 2]),
        ({"includeArtifacts": True}, [2, 1, 1, 1, 1]),
        ({"includeArtifacts": True, "historyLength": 0}, [4, 2]),
        ({"historyLength": 0}, [6]),
        ({"historyLength": 0, "pageSize": 4}, [4, 2]),
    ],
    ids=str,
)
def test_f180_a_page_ends_where_it_would_be_too_large_and_the_next_one_goes_on(
    shared: Server, large: str, shown: Json, sizes: list[int]
) -> None:
    pages = walk(shared, contextId=large, **shown)
    assert [len(page) for page in pages] == sizes
    assert len({task["id"] for page in pages for task in page}) == 6
    for task in (task for page in pages for task in page):
        assert ("history" in task) is (shown.get("historyLength") != 0)
        assert bool(task.get("artifacts")) is ("includeArtifacts" in shown)


def test_f180_a_usual_grpc_client_reads_every_page(shared: Server, large: str) -> None:
    asked: Json = {"contextId": large, "pageSize": 100, "includeArtifacts": True}
    found, token = 0, ""
    with usual(shared) as connection:
        while found == 0 or token:
            sent = over_grpc.message("ListTasks", asked | {"pageToken": token})
            answer = over_grpc.call(connection, "ListTasks")(
                sent, metadata=tuple(over_grpc.VERSION.items()), timeout=20
            )
            page = over_grpc.read("ListTasks", answer)
            found, token = found + len(page["tasks"]), page.get("nextPageToken", "")
    assert found == 6


def test_f180_a_page_of_the_log_ends_where_it_would_be_too_large_and_the_next_one_goes_on(
    shared: Server, large: str
) -> None:
    found: list[Json] = []
    cursor = ""
    while not found or cursor:
        page = shared.get(f"/api/sessions/{large}/messages", limit=200, **({"cursor": cursor} if cursor else {}))
        assert len(json.dumps(page["messages"])) < LOG_BYTES + 100_000
        found, cursor = page["messages"] + found, page["next_cursor"]
    assert [message["kind"] for message in found] == ["user", "agent"] * 6
    assert [len(message["text"]) for message in found] == [900_000] * 10 + [5] * 2


def test_f180_a_task_larger_than_a_page_is_a_page_and_what_a_grpc_client_does_not_read_is_one_line_of_the_log(
    shared: Server,
) -> None:
    context = fresh("ctx")
    task = wire.send(
        shared, message("\u20ac" * 1_000_000, contextId=context), historyLength=0
    )  # three bytes each, twice
    (only,) = listed(shared, contextId=context, includeArtifacts=True)["tasks"]
    assert only["id"] == task["id"]
    said = len(shared.log())
    sent = over_grpc.message("GetTask", {"id": task["id"]})
    with usual(shared) as connection:
        for _ in range(6):  # the library logs it where it had not written all of it
            with pytest.raises(grpc.RpcError) as refused:
                over_grpc.call(connection, "GetTask")(sent, metadata=tuple(over_grpc.VERSION.items()), timeout=20)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert Grpc().ask(shared, "GetTask", {"id": task["id"], "historyLength": 0}).result["id"] == task["id"]
    assert "Traceback" not in shared.log()[said:] and "ERROR" not in shared.log()[said:]
