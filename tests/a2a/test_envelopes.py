"""Envelopes, versions and odd input over real HTTP: each gets its own answer, by code, and none reaches a handler."""

import json
from typing import Any

import pytest

from tests.a2a import wire
from tests.a2a.wire import message
from tests.support.server import Server


def body(**fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": "GetTask", "params": {"id": "t"}} | fields).encode()


def without(field: str) -> bytes:
    whole = json.loads(body())
    del whole[field]
    return json.dumps(whole).encode()


@pytest.mark.parametrize(
    ("sent", "code", "rpc_id"),
    [
        (b"{bad", -32700, None),
        (b"", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[]", -32600, None),
        (b"[" + body() + b"]", -32600, None),
        (b"5", -32600, None),
        (b'"x"', -32600, None),
        (b"null", -32600, None),
        (without("jsonrpc"), -32600, 7),
        (body(jsonrpc="1.0"), -32600, 7),
        (without("method"), -32600, 7),
        (body(method=5), -32600, 7),
        (body(method=""), -32600, 7),
        (body(id=[1]), -32600, None),
        (body(method="NoSuch", id="a"), -32601, "a"),
        (body(params="x"), -32602, 7),
        (body(params=[1]), -32602, 7),
        (body(params=None), -32602, 7),
        (body(params={"id": 5}), -32602, 7),
        (without("params"), -32602, 7),
    ],
    ids=lambda value: value[:24].decode("latin-1") if isinstance(value, bytes) else None,
)
def test_a76_an_envelope_that_is_none_is_answered_in_one_with_http_200(
    shared: Server, sent: bytes, code: int, rpc_id: Any
) -> None:
    answer = shared.http.post("/a2a", content=sent, headers=wire.VERSION)
    assert answer.status_code == 200
    assert wire.error(answer)["code"] == code and answer.json()["id"] == rpc_id


@pytest.mark.parametrize("version", ["1.0", "1.0.1"])
def test_a80_this_version_and_its_patches_are_spoken(shared: Server, version: str) -> None:
    answer = wire.post(shared, "GetTask", {"id": "t"}, **{"A2A-Version": version})
    assert wire.told(answer) == (200, -32001, "TASK_NOT_FOUND")


@pytest.mark.parametrize(
    "version", ["", "0.3", "1.1", "1.7", "2.0", "99.0", "abc", "1", "v1.0", "1.0-rc1", "1.0,0.3", "1.0.x"]
)
def test_a80_every_other_version_is_refused_as_such(shared: Server, version: str) -> None:
    with wire.nothing_stored(shared):
        answer = wire.post(shared, "SendMessage", {"message": message()}, **{"A2A-Version": version})
    assert wire.told(answer) == (200, -32009, "VERSION_NOT_SUPPORTED")


def test_a80_no_version_at_all_means_0_3(shared: Server) -> None:
    answer = shared.http.post("/a2a", content=body(method="GetTask"))
    assert wire.told(answer) == (200, -32009, "VERSION_NOT_SUPPORTED")
    answer = shared.http.post("/a2a", content=body(method="tasks/get"))
    assert wire.told(answer) == (200, -32001, "TASK_NOT_FOUND")


def test_a80_the_version_comes_by_header_in_any_case_or_by_query_and_the_header_wins(shared: Server) -> None:
    found = (200, -32001, "TASK_NOT_FOUND")
    assert wire.told(shared.http.post("/a2a", content=body(), headers={"a2a-VERSION": "1.0"})) == found
    assert wire.told(shared.http.post("/a2a?A2A-Version=1.0", content=body())) == found
    answer = shared.http.post("/a2a?A2A-Version=0.3", content=body(), headers=wire.VERSION)
    assert wire.told(answer) == found
    answer = shared.http.post("/a2a?A2A-Version=1.0", content=body(), headers={"A2A-Version": "0.3"})
    assert wire.told(answer) == (200, -32009, "VERSION_NOT_SUPPORTED")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messageId": None}, "message.messageId"),
        ({"messageId": 5}, "message.messageId"),
        ({"messageId": "x" * 257}, "message.messageId"),
        ({"messageId": "a\nb"}, "message.messageId"),
        ({"contextId": "a b"}, "message.contextId"),
        ({"contextId": "../../etc/passwd"}, "message.contextId"),
        ({"role": "ROLE_AGENT"}, "message.role"),
        ({"role": "user"}, "message.role"),
        ({"parts": []}, "message.parts"),
        ({"parts": "hello"}, "message.parts"),
        ({"parts": [{"text": "x"}] * 65}, "message.parts"),
        ({"parts": [{"text": "x", "data": 1}]}, "message.parts[0]"),
        ({"parts": [{"raw": "%%%"}]}, "message.parts[0].raw"),
        ({"parts": [{"text": "   "}]}, "message.parts[0].text"),
        ({"parts": [{"text": "x" * 1_000_001}]}, "message.parts[0].text"),
        ({"metadata": {"k": "v" * 70_000}}, "message.metadata"),
        ({"metadata": "x"}, "message.metadata"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_f180_a_bad_field_is_named_and_its_value_is_not_repeated(shared: Server, change: wire.Json, field: str) -> None:
    with wire.nothing_stored(shared):
        answer = wire.post(shared, "SendMessage", {"message": message() | change})
    assert wire.told(answer) == (200, -32602, "INVALID_PARAMS")
    (details,) = [detail for detail in wire.error(answer)["data"] if detail["@type"].endswith("BadRequest")]
    assert [violation["field"] for violation in details["fieldViolations"]] == [field]
    assert "passwd" not in answer.text and "vvvv" not in answer.text and "xxxx" not in answer.text


def test_a86_numbers_come_back_from_an_echo_as_they_were_sent(shared: Server) -> None:
    data = (
        '{"i": 1, "big": 9007199254740993, "f": 1.5, "n": null, "neg": -0.25, "huge": 123456789012345678901234567890}'
    )
    sent = json.dumps(message(parts=[{"data": "HERE"}])).replace('"HERE"', data)
    request = f'{{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {{"message": {sent}}}}}'
    answer = shared.http.post("/a2a", content=request, headers=wire.VERSION)
    (part,) = wire.result(answer)["task"]["artifacts"][0]["parts"]
    assert part["data"] == json.loads(data)
    compact = answer.text.replace(" ", "")
    assert '"big":9007199254740993' in compact and '"f":1.5' in compact and '"i":1,' in compact
    assert '"n":null' in compact and '"huge":123456789012345678901234567890' in compact


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a86_what_is_no_number_of_json_does_not_come_in(shared: Server, number: str) -> None:
    sent = json.dumps(message(parts=[{"data": {"x": "HERE"}}])).replace('"HERE"', number)
    request = f'{{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {{"message": {sent}}}}}'
    with wire.nothing_stored(shared):
        answer = shared.http.post("/a2a", content=request, headers=wire.VERSION)
    assert wire.told(answer) == (200, -32602, "INVALID_PARAMS")


def test_lone_surrogates_and_nul_characters_are_made_clean_and_fail_nothing(shared: Server) -> None:
    """F032: once, where they enter."""
    sent = json.dumps(message("HERE")).replace("HERE", r"a\ud800b\u0000c")
    request = f'{{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {{"message": {sent}}}}}'
    answer = shared.http.post("/a2a", content=request, headers=wire.VERSION)
    assert wire.result(answer)["task"]["artifacts"][0]["parts"] == [{"text": "a\ufffdb\ufffdc"}]


def test_a94_what_the_card_does_not_offer_is_refused_by_its_own_code(shared: Server) -> None:
    assert wire.told(wire.post(shared, "GetExtendedAgentCard", {}))[2] == "UNSUPPORTED_OPERATION"


def test_a_slash_behind_the_address_of_the_card_is_the_same_address(shared: Server) -> None:
    request = {"jsonrpc": "2.0", "id": 7, "method": "GetTask", "params": {"id": "t"}}
    answer = shared.http.post("/a2a/", json=request, headers=wire.VERSION)
    assert wire.told(answer) == (200, -32001, "TASK_NOT_FOUND")
    refused = shared.http.post("/a2a/", json=request, headers={"Host": "evil.example"})
    assert wire.error(refused)["code"] == -32043 and refused.json()["jsonrpc"] == "2.0"
