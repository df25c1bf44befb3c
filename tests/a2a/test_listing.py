"""ListTasks over JSON-RPC: answered by the store, filtered, ordered, paged, and only of one's own (group F)."""

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from a2a.types import a2a_pb2 as types

from tests.a2a import wire
from tests.a2a.conftest import asking
from tests.a2a.wire import COMPLETED, Json, message, said
from tests.support.scripted import ScriptedModel
from tests.support.server import Server

MANY = 60


@pytest.fixture(scope="module")
def full(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with sixty ended tasks in six contexts, each of which said two words."""
    with Server(tmp_path_factory.mktemp("full") / "data", env=asking(shared_model)) as server:
        with ThreadPoolExecutor(4) as crowd:
            contexts = [f"ctx-{number % 6}" for number in range(MANY)]
            list(crowd.map(lambda context: wire.send(server, message("two words", contextId=context)), contexts))
        yield server


def listed(server: Server, **asked: Any) -> Json:
    """ListTasks that must succeed: its answer as it came, which the official types know field by field."""
    answer = wire.result(wire.post(server, "ListTasks", asked))
    wire.strictly(answer, types.ListTasksResponse())
    return answer


def ids(answer: Json) -> list[str]:
    return [task["id"] for task in answer["tasks"]]


def walk(server: Server, **asked: Any) -> list[Json]:
    """All pages."""
    pages = [listed(server, **asked)]
    while token := pages[-1]["nextPageToken"]:
        pages.append(listed(server, **asked, pageToken=token))
    return pages


def test_a58_f069_f071_the_first_page_has_fifty_and_a_token_and_the_last_an_empty_one(full: Server) -> None:
    first, last = walk(full)
    assert (len(first["tasks"]), first["pageSize"], first["totalSize"]) == (50, 50, MANY)
    assert (len(last["tasks"]), last["pageSize"], last["totalSize"], last["nextPageToken"]) == (10, 50, MANY, "")
    assert len({*ids(first), *ids(last)}) == MANY
    none = listed(full, contextId="nobody-was-here")
    assert none == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}


def test_f072_the_newest_status_comes_first_then_the_id(full: Server) -> None:
    shown = [(task["status"]["timestamp"], task["id"]) for page in walk(full, pageSize=7) for task in page["tasks"]]
    assert len(shown) == MANY
    assert shown == sorted(sorted(shown, key=lambda pair: pair[1]), key=lambda pair: pair[0], reverse=True)


def test_a63_f068_artifacts_are_not_there_unless_they_are_asked_for(full: Server) -> None:
    assert all("artifacts" not in task for task in listed(full)["tasks"])
    assert all("artifacts" not in task for task in listed(full, includeArtifacts=False)["tasks"])
    for task in listed(full, includeArtifacts=True, pageSize=5)["tasks"]:
        assert task["artifacts"] == wire.get(full, task["id"])["artifacts"] != []


def test_a53_f067_the_history_is_as_long_as_was_asked(full: Server) -> None:
    whole = listed(full, pageSize=3)["tasks"]
    assert all(task["history"] == wire.get(full, task["id"])["history"] for task in whole)
    assert all("history" not in task for task in listed(full, pageSize=3, historyLength=0)["tasks"])
    assert [task["history"] for task in listed(full, pageSize=3, historyLength=99)["tasks"]] == [
        task["history"] for task in whole
    ]
    assert wire.told(wire.post(full, "ListTasks", {"historyLength": -1})) == (200, -32602, "INVALID_PARAMS")


def test_f066_filters_narrow_together_and_are_counted_before_paging(full: Server) -> None:
    of_context = listed(full, contextId="ctx-3", pageSize=4)
    assert of_context["totalSize"] == 10 and {task["contextId"] for task in of_context["tasks"]} == {"ctx-3"}
    middle = listed(full, contextId="ctx-3")["tasks"][4]["status"]["timestamp"]
    since = [task for page in walk(full, contextId="ctx-3", statusTimestampAfter=middle) for task in page["tasks"]]
    assert middle in {task["status"]["timestamp"] for task in since}  # at that time, or after
    assert all(task["status"]["timestamp"] >= middle for task in since)
    assert listed(full, contextId="ctx-3", status=COMPLETED)["totalSize"] == 10
    assert listed(full, contextId="ctx-3", status="TASK_STATE_FAILED")["totalSize"] == 0
    assert listed(full, contextId="ctx-3", status="TASK_STATE_REJECTED")["totalSize"] == 0
    assert listed(full, statusTimestampAfter="2999-01-01T00:00:00Z")["totalSize"] == 0


@pytest.mark.parametrize("asked", [{}, {"status": "TASK_STATE_UNSPECIFIED"}, {"status": 0}, {"status": None}])
def test_a61_no_filter_is_no_filter(full: Server, asked: Json) -> None:
    assert listed(full, **asked)["totalSize"] == MANY


WRONG = [
    ("status", "completed"),
    ("status", "TASK_STATE_BOGUS"),
    ("status", 99),
    ("status", []),
    ("pageSize", 0),
    ("pageSize", -1),
    ("pageSize", 101),
    ("pageSize", "abc"),
    ("pageSize", "50"),
    ("pageSize", 2**31),
    ("pageSize", True),
    ("pageSize", 1.5),
    ("pageToken", "x"),
    ("pageToken", "é"),
    ("pageToken", "A" * 5000),
    ("pageToken", 5),
    ("contextId", 5),
    ("statusTimestampAfter", "yesterday"),
    ("statusTimestampAfter", "2026-13-01T00:00:00Z"),
    ("statusTimestampAfter", "2026-11-30"),
    ("statusTimestampAfter", 5),
    ("includeArtifacts", "true"),
    ("historyLength", "2"),
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=str)
def test_a60_a64_what_is_out_of_bounds_is_refused_by_its_field_and_not_repeated(
    full: Server, field: str, value: object
) -> None:
    answer = wire.post(full, "ListTasks", {field: value})
    assert wire.told(answer) == (200, -32602, "INVALID_PARAMS")
    found = [one for one in wire.error(answer)["data"] if one["@type"].endswith("BadRequest")]
    assert [one["field"] for one in found[0]["fieldViolations"]] == [field]
    assert "bogus" not in answer.text.casefold() and "yesterday" not in answer.text


def test_f073_a_token_holds_for_its_own_list_alone(full: Server) -> None:
    token = listed(full, pageSize=10)["nextPageToken"]
    assert ids(listed(full, pageSize=5, pageToken=token))  # another size is the same list
    flipped = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    flipped[-1] ^= 1
    altered = base64.urlsafe_b64encode(bytes(flipped)).decode().rstrip("=")
    for asked in (
        {"pageToken": token, "contextId": "ctx-1"},
        {"pageToken": token, "status": 3},
        {"pageToken": altered},
        {"pageToken": token + "="},
        *({"pageToken": token[:-1] + end} for end in "AQgwBC" if end != token[-1]),  # some of them the same bytes
    ):
        assert wire.told(wire.post(full, "ListTasks", asked)) == (200, -32602, "INVALID_PARAMS")


def test_f073_a_token_holds_after_a_restart(
    shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Server(tmp_path_factory.mktemp("again") / "data", env=asking(shared_model)) as server:
        made = [wire.send(server, message())["id"] for _ in range(3)]
        first = listed(server, pageSize=2)
        server.restart()
        rest = listed(server, pageSize=2, pageToken=first["nextPageToken"])
        assert sorted(ids(first) + ids(rest)) == sorted(made)


def test_a56_f072_what_changes_while_somebody_pages_repeats_nothing_and_loses_nothing_else(
    shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared_model.rules([{"gate": "g", "text": "late"}])
    with Server(tmp_path_factory.mktemp("paging") / "data", env=asking(shared_model)) as server:
        waiting = [wire.start(server, said()) for _ in range(6)]
        still = [wire.send(server, message())["id"] for _ in range(24)]
        seen = ids(first := listed(server, pageSize=5))
        token = first["nextPageToken"]
        shared_model.open("g")
        for number in range(30):
            if number < 6:
                server.ended(waiting[number]["id"])
            wire.send(server, message("new"))
            if not token:
                break
            page = listed(server, pageSize=5, pageToken=token)
            seen, token = seen + ids(page), page["nextPageToken"]
        assert len(seen) == len(set(seen))
        assert set(still) <= set(seen)
        assert {task["id"] for task in waiting} <= set(ids(listed(server, pageSize=100)))


def test_f066_a_job_s_own_task_is_listed_only_where_its_context_is_named(shared: Server, model: ScriptedModel) -> None:
    model.rules([{"text": "the report"}])
    session = wire.fresh()
    since = wire.send(shared, message())["status"]["timestamp"]  # no context, and not what others left on this server
    shared.post("/api/sessions", id=session)
    job = shared.spawn(session, "look")
    shared.wait(lambda: shared.job(job["id"])["notified"])
    task_id = shared.job(job["id"])["task_id"]
    mine = [found for page in walk(shared, pageSize=100, statusTimestampAfter=since) for found in ids(page)]
    assert task_id not in mine and shared.job(job["id"])["notified_in"] in mine
    assert ids(listed(shared, contextId=f"background:{job['id']}")) == [task_id]


def test_a66_f065_without_a_worker_tasks_are_listed_all_the_same(
    shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = tmp_path_factory.mktemp("workerless") / "data"
    with Server(data, env=asking(shared_model)) as server:
        made = [wire.send(server, message())["id"] for _ in range(2)]
    with Server(data, "--no-worker", env=asking(shared_model)) as server:
        assert sorted(ids(listed(server))) == sorted(made)


def test_a06_a_task_at_work_is_listed_as_working_and_no_longer_once_it_has_ended(
    shared: Server, model: ScriptedModel
) -> None:
    model.rules([{"gate": "g", "text": "done"}])
    task = wire.start(shared, said(contextId=wire.fresh()))
    model.held_at("g")
    asked = {"contextId": task["contextId"], "status": wire.WORKING}
    shared.wait(lambda: ids(listed(shared, **asked)) == [task["id"]])
    assert listed(shared, **asked, includeArtifacts=True)["tasks"][0]["artifacts"] == []  # A63: there are none
    model.open("g")
    shared.ended(task["id"])
    assert listed(shared, **asked)["totalSize"] == 0
    assert listed(shared, contextId=task["contextId"], status=COMPLETED)["totalSize"] == 1


def test_f068_a_task_that_ended_with_nothing_has_an_empty_list_where_artifacts_are_asked_for(
    shared: Server, model: ScriptedModel
) -> None:
    model.rules([{"status": 400}])
    task = wire.send(shared, said(contextId=wire.fresh()))
    (found,) = listed(shared, contextId=task["contextId"], includeArtifacts=True)["tasks"]
    assert found["artifacts"] == [] and found == task
