"""HTTP+JSON by hand: its addresses, versions, media types, bodies and queries, and what is no address of its own."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.a2a import wire
from tests.a2a.bindings import A2A_JSON, frames, read
from tests.a2a.wire import COMPLETED, message, said
from tests.support.scripted import ScriptedModel
from tests.support.server import Server, answer_of

REST = "/a2a/rest"
NOT_FOUND, NO_ADDRESS = "TASK_NOT_FOUND", "METHOD_NOT_FOUND"


def call(server: Server, verb: str, path: str, **sent: Any) -> httpx.Response:
    headers = wire.VERSION | sent.pop("headers", {})
    return server.http.request(verb, f"{REST}{path}", headers=headers, **sent)


def told(answer: httpx.Response) -> tuple[int, str]:
    """(HTTP status, reason) of an error, after a look at its shape."""
    found = read(answer)
    return found.status, found.reason


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", "/anything/tasks"),
        ("GET", "/acme/tasks/t"),
        ("POST", "/acme/message:send"),
        ("GET", ""),
        ("GET", "/"),
        ("GET", "/tasks/"),
        ("GET", "/tasks/t/more"),
        ("GET", "/tasks/t/pushNotificationConfigs/"),
        ("GET", "/v1/tasks"),
        ("POST", "/message:receive"),
        ("GET", "/tasks\n"),
    ],
)
def test_a71_a72_what_is_no_address_is_404_as_json_and_a_tenant_makes_none(
    shared: Server, verb: str, path: str
) -> None:
    raw = httpx.URL(shared.url).copy_with(raw_path=f"{REST}{path}".replace("\n", "%0A").encode())
    answer = shared.http.request(verb, raw, headers=wire.VERSION)
    assert told(answer) == (404, NO_ADDRESS)
    assert answer.json()["error"]["status"] == "NOT_FOUND"


@pytest.mark.parametrize("path", ["/anything/tasks", "/a2a/anything", "/a2a/restaurant", "/rest/tasks", "/tasks"])
def test_a72_no_alias_of_an_address_is_served(shared: Server, path: str) -> None:
    answer = shared.http.get(path, headers=wire.VERSION)
    assert answer.status_code == 404 and answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("verb", "path", "allowed"),
    [
        ("PUT", "/tasks/t", {"GET"}),
        ("DELETE", "/tasks", {"GET"}),
        ("GET", "/message:send", {"POST"}),
        ("GET", "/tasks/t:cancel", {"POST"}),
        ("PATCH", "/tasks/t:subscribe", {"POST", "GET"}),
        ("PUT", "/tasks/t/pushNotificationConfigs/p", {"GET", "DELETE"}),
    ],
)
def test_another_verb_is_told_which_ones_there_are(shared: Server, verb: str, path: str, allowed: set[str]) -> None:
    answer = call(shared, verb, path)
    assert told(answer) == (405, NO_ADDRESS)
    assert set(answer.headers["allow"].split(", ")) == allowed


def test_a72_every_other_door_still_leads_to_its_own_room(shared: Server) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/api/background", "/api/status", "/"):
        assert shared.http.get(path).status_code == 200, path
    task = wire.send(shared, message())
    assert call(shared, "GET", f"/tasks/{task['id']}").json() == task


def test_a97_every_interface_on_the_card_is_called_as_declared(shared: Server) -> None:
    card = shared.get("/.well-known/agent-card.json")
    faces = {face["protocolBinding"]: face for face in card["supportedInterfaces"]}
    version = {"A2A-Version": faces["HTTP+JSON"]["protocolVersion"]}
    sent = {"message": message("as declared")}
    answer = shared.http.post(f"{faces['HTTP+JSON']['url']}/message:send", json=sent, headers=version)
    assert answer_of(read(answer).task) == "as declared"
    asked = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": sent}
    answer = shared.http.post(faces["JSONRPC"]["url"], json=asked, headers=version)
    assert answer_of(wire.result(answer)["task"]) == "as declared"


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "1.0.1"])
def test_a80_this_version_and_its_patches_are_spoken(shared: Server, version: str) -> None:
    assert told(call(shared, "GET", "/tasks/t", headers={"A2A-Version": version})) == (404, NOT_FOUND)


@pytest.mark.parametrize(
    "version", ["", "0.3", "0.5", "1.1", "1.7", "2.0", "99.0", "abc", "1", "v1.0", "1.0-rc1", "1.0,0.3"]
)
def test_a80_every_other_version_is_refused_as_such(shared: Server, version: str) -> None:
    with wire.nothing_stored(shared):
        answer = call(shared, "POST", "/message:send", json={"message": message()}, headers={"A2A-Version": version})
    assert told(answer) == (400, "VERSION_NOT_SUPPORTED")


def test_a80_the_version_comes_by_header_in_any_case_or_by_query_and_the_header_wins(shared: Server) -> None:
    def asked(query: str = "", **headers: str) -> tuple[int, str]:
        return told(shared.http.get(f"{REST}/tasks/t{query}", headers=headers))

    refused = (400, "VERSION_NOT_SUPPORTED")
    assert asked() == refused
    assert asked("?A2A-Version=1.0") == asked(**{"a2a-VERSION": "1.0"}) == (404, NOT_FOUND)
    assert asked("?A2A-Version=0.3", **wire.VERSION) == (404, NOT_FOUND)
    assert asked("?A2A-Version=1.0", **{"A2A-Version": "0.3"}) == refused


# --- bodies and queries -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/message:send", "/message:stream", "/tasks/t:cancel", "/tasks/t:subscribe"])
@pytest.mark.parametrize(
    ("body", "reason"),
    [(b"{bad", "JSON_PARSE"), (b"\xff\xfe", "JSON_PARSE"), (b"[]", "INVALID_REQUEST"), (b"5", "INVALID_REQUEST")],
    ids=str,
)
def test_a46_a52_a_malformed_body_is_400_json_on_every_address_that_takes_one(
    shared: Server, path: str, body: bytes, reason: str
) -> None:
    assert told(call(shared, "POST", path, content=body)) == (400, reason)


@pytest.mark.parametrize("path", ["/message:send", "/message:stream", "/tasks/t/pushNotificationConfigs"])
def test_a_body_that_must_be_there_is_missed(shared: Server, path: str) -> None:
    assert told(call(shared, "POST", path)) == (400, "JSON_PARSE")


@pytest.mark.parametrize("body", [b"", b"{}", b'{"metadata": {"reason": "x"}}', b'{"id": "HERE", "tenant": ""}'])
def test_a52_a_cancel_takes_an_empty_body_and_one_that_says_the_id_again(
    shared: Server, model: ScriptedModel, body: bytes
) -> None:
    model.rules([{"gate": "never"}])
    task = wire.start(shared, said())["id"]
    canceled = call(shared, "POST", f"/tasks/{task}:cancel", content=body.replace(b"HERE", task.encode()))
    assert read(canceled).result == wire.get(shared, task)
    assert canceled.json()["status"]["state"] == wire.CANCELED


def test_a_field_of_the_path_is_not_another_one_in_the_body_or_the_query(shared: Server) -> None:
    refused = (400, "INVALID_PARAMS")
    assert told(call(shared, "POST", "/tasks/t:cancel", json={"id": "other"})) == refused
    assert told(call(shared, "GET", "/tasks/t?id=other")) == refused
    config = {"taskId": "other", "url": "https://93.184.216.34/"}
    assert told(call(shared, "POST", "/tasks/t/pushNotificationConfigs", json=config)) == refused


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", "/tasks"),
        ("GET", "/tasks/t"),
        ("GET", "/tasks/t:subscribe"),
        ("POST", "/tasks/t:subscribe"),
        ("POST", "/tasks/t:cancel"),
        ("GET", "/tasks/t/pushNotificationConfigs"),
        ("DELETE", "/tasks/t/pushNotificationConfigs/p"),
    ],
)
def test_a71_a_tenant_in_the_query_is_refused_as_in_params(shared: Server, verb: str, path: str) -> None:
    answer = read(call(shared, verb, f"{path}?tenant=acme"))
    assert (answer.status, answer.reason) == (400, "INVALID_PARAMS")
    assert answer.details[1]["fieldViolations"][0]["field"] == "tenant"


def test_a71_a_send_with_a_tenant_in_its_query_is_refused_too(shared: Server) -> None:
    with wire.nothing_stored(shared):
        answer = call(shared, "POST", "/message:send?tenant=acme", json={"message": message()})
    assert told(answer) == (400, "INVALID_PARAMS")


def test_a60_a_filter_that_is_given_twice_is_not_lost_without_a_word(shared: Server) -> None:
    answer = read(call(shared, "GET", f"/tasks?status={COMPLETED}&status=TASK_STATE_WORKING"))
    assert (answer.status, answer.reason, answer.message) == (400, "INVALID_PARAMS", "status: must be given once")


@pytest.mark.parametrize("wanted", ["true", "false"])
def test_queries_write_flags_and_numbers_in_words_and_digits(shared: Server, wanted: str) -> None:
    context = wire.send(shared, message(contextId=wire.fresh("rest")))["contextId"]
    asked = f"/tasks?contextId={context}&includeArtifacts={wanted}&historyLength=0&pageSize=1&status={COMPLETED}"
    (task,) = read(call(shared, "GET", asked)).result["tasks"]
    assert ("artifacts" in task) == (wanted == "true") and "history" not in task


@pytest.mark.parametrize("wrong", ["True", "1", "yes"])
def test_a60_a_flag_that_is_none_is_refused(shared: Server, wrong: str) -> None:
    assert told(call(shared, "GET", f"/tasks?includeArtifacts={wrong}")) == (400, "INVALID_PARAMS")


@pytest.mark.parametrize("query", ["historyLength=%D9%A3", "historyLength=1_0", "historyLength=%201", "contextId=%00"])
def test_a64_what_only_looks_like_a_number_or_an_id_is_refused(shared: Server, query: str) -> None:
    assert told(call(shared, "GET", f"/tasks?{query}")) == (400, "INVALID_PARAMS")


# --- media types and streams ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("media_type", ["application/json", A2A_JSON, "application/a2a+json; charset=utf-8"])
def test_either_media_type_is_taken_and_the_protocols_own_is_sent(shared: Server, media_type: str) -> None:
    sent = json.dumps({"message": message()})
    answer = call(shared, "POST", "/message:send", content=sent, headers={"content-type": media_type})
    assert answer.headers["content-type"] == A2A_JSON and read(answer).task


def test_a44_a_stream_begins_while_the_agent_is_silent_and_no_proxy_holds_it(
    shared: Server, model: ScriptedModel
) -> None:
    model.rules([{"gate": "g", "text": "at last"}])
    with shared.http.stream("POST", f"{REST}/message:stream", json={"message": said()}, headers=wire.VERSION) as answer:
        assert answer.headers["cache-control"] == "no-store" and answer.headers["x-accel-buffering"] == "no"
        told = frames(answer)
        first = next(told)
        model.open("g")
        assert wire.replayed([first, *told])["artifacts"][0]["parts"] == [{"text": "at last"}]


@pytest.mark.parametrize("verb", ["GET", "POST"])
def test_a37_a_running_task_is_subscribed_to_by_either_verb_and_an_ended_one_is_refused_as_json(
    shared: Server, model: ScriptedModel, verb: str
) -> None:
    model.rules([{"gate": "g", "text": "done"}])
    task = wire.start(shared, said())["id"]
    with shared.http.stream(verb, f"{REST}/tasks/{task}:subscribe", headers=wire.VERSION) as answer:
        told_of = frames(answer)
        assert next(told_of)["task"]["id"] == task
        model.open("g")
        *_, last = told_of
    assert last["statusUpdate"]["status"]["state"] == COMPLETED
    assert told(call(shared, verb, f"/tasks/{task}:subscribe")) == (400, "UNSUPPORTED_OPERATION")
    assert told(call(shared, verb, "/tasks/nope:subscribe")) == (404, NOT_FOUND)


@pytest.mark.parametrize("length", [2_000_000, 4 * 1024 * 1024 - 4096])
def test_a46_a_large_body_in_chunks_is_read_before_its_stream_begins(shared: Server, length: int) -> None:
    data = "y" * length
    body = json.dumps({"message": message(parts=[{"data": data}])}).encode()

    def pieces() -> Iterator[bytes]:
        yield from (body[start : start + 65536] for start in range(0, len(body), 65536))

    began = time.monotonic()
    with shared.http.stream("POST", f"{REST}/message:stream", content=pieces(), headers=wire.VERSION) as answer:
        told = frames(answer)
        task = next(told)["task"]
        assert time.monotonic() - began < 5  # a second on a machine that does nothing else
        assert task["history"][0]["parts"] == [{"data": data}]
        *_, last = told
    assert last["statusUpdate"]["status"]["state"] == COMPLETED


# --- the door ---------------------------------------------------------------------------------------------------------


def test_who_is_not_let_in_is_told_so_in_the_bindings_form(shared: Server) -> None:
    assert told(call(shared, "GET", "/tasks", headers={"Origin": "https://elsewhere.example"})) == (
        403,
        "PERMISSION_DENIED",
    )
    assert told(call(shared, "GET", "/tasks", headers={"X-Forwarded-For": "192.0.2.1"})) == (401, "UNAUTHENTICATED")
