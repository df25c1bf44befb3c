"""What A2A clients send: taken as it was meant, or refused by the field, before anything is stored."""

import json
import time
from typing import Any

import pytest
from a2a.types.a2a_pb2 import Message
from google.protobuf.json_format import ParseDict

from web.a2a_03 import TWINS
from web.a2a_errors import A2AError
from web.a2a_fields import Limits
from web.a2a_requests import (
    SERVED,
    SendRequest,
    cancel_params,
    get_params,
    negotiate,
    parse_envelope,
    send_params,
    subscribe_params,
)

LIMITS = Limits(skills=("chat", "echo"))
MISSING = object()


def message(**changes: Any) -> dict[str, Any]:
    """A message that is taken, with changes; MISSING takes a field away."""
    whole = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]} | changes
    return {key: value for key, value in whole.items() if value is not MISSING}


def envelope(params: Any = MISSING, **changes: Any) -> bytes:
    whole = {"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": params} | changes
    return json.dumps({key: value for key, value in whole.items() if value is not MISSING}).encode()


def send(limits: Limits = LIMITS, configuration: Any = MISSING, **changes: Any) -> SendRequest:
    """The message sent as bytes, as a client would."""
    params = {"message": message(**changes)} | ({} if configuration is MISSING else {"configuration": configuration})
    return send_params(parse_envelope(envelope(params)).params, limits)


def refused(call: Any, *arguments: Any, **named: Any) -> A2AError:
    with pytest.raises(A2AError) as error:
        call(*arguments, **named)
    return error.value


def refused_field(*arguments: Any, **named: Any) -> str:
    error = refused(*arguments, **named)
    assert error.kind.code == -32602
    ((field, description),) = error.violations
    assert error.message == f"{field}: {description}"
    return field


# --- the envelope ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"{bad", b"", b"\xff\xfe", b"\xef\xbb\xbf{}", b"{} {}"])
def test_A76_what_is_not_json_is_a_parse_error_without_id(body: bytes) -> None:
    error = refused(parse_envelope, body)
    assert (error.kind.code, error.rpc_id) == (-32700, None)


@pytest.mark.parametrize("body", [b"[]", b"[" + envelope({}) + b"]", b"5", b'"x"', b"null", b"true", b"{}"])
def test_A76_what_is_no_request_object_has_no_id(body: bytes) -> None:
    error = refused(parse_envelope, body)
    assert (error.kind.code, error.rpc_id) == (-32600, None)


@pytest.mark.parametrize(
    "change",
    [
        {"jsonrpc": MISSING},
        {"jsonrpc": "1.0"},
        {"jsonrpc": 2.0},
        {"method": MISSING},
        {"method": 5},
        {"method": ""},
        {"method": None},
    ],
    ids=lambda change: " ".join(f"{name} {'missing' if it is MISSING else repr(it)}" for name, it in change.items()),
)
def test_A76_an_envelope_that_is_not_whole_is_an_invalid_request(change: dict[str, Any]) -> None:
    error = refused(parse_envelope, envelope({}, **change))
    assert (error.kind.code, error.rpc_id) == (-32600, 7)


@pytest.mark.parametrize("rpc_id", ["a", 0, 7, 1.5, None, "", 2**70])
def test_the_id_comes_back_as_it_was(rpc_id: object) -> None:
    assert parse_envelope(envelope({}, id=rpc_id)).id == rpc_id


@pytest.mark.parametrize("rpc_id", [True, [], {}, [1], float("nan"), float("inf")], ids=str)
def test_an_id_that_json_rpc_does_not_know_is_an_invalid_request(rpc_id: object) -> None:
    error = refused(parse_envelope, envelope({}, id=rpc_id))
    assert (error.kind.code, error.rpc_id) == (-32600, None)


def test_a_request_without_id_or_params_is_one() -> None:
    assert parse_envelope(envelope(id=MISSING)) == (None, "SendMessage", {})


@pytest.mark.parametrize("parse", [send_params, get_params, cancel_params, subscribe_params])
@pytest.mark.parametrize("params", ["x", [1], None, 5, True], ids=str)
def test_A76_params_that_are_no_object_are_invalid(parse: Any, params: object) -> None:
    assert refused_field(parse, parse_envelope(envelope(params)).params, LIMITS) == "params"


# --- methods and versions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "1.0.1", "1.0.17"])
@pytest.mark.parametrize("method", sorted(SERVED))
def test_A80_the_version_and_its_patches_are_spoken(version: str, method: str) -> None:
    assert negotiate(version, None, method) == negotiate(None, version, method) == "1.0"


WRONG = ["0.3", "0.5", "1.1", "1.7", "2.0", "99.0", "abc", "1", "v1.0", "1.0-rc1", "1.0,0.3", "1.0.", "1.0 ", "1.0\n"]


@pytest.mark.parametrize("version", [None, "", *WRONG, "1.0.x", "1.0.1.2", "１.0"])
@pytest.mark.parametrize("method", sorted(SERVED))
def test_A80_a_method_of_another_version_or_of_none_is_refused_with_what_is_served(
    version: str | None, method: str
) -> None:
    for header, query in ((version, None), (None, version), (version, version)):
        error = refused(negotiate, header, query, method)
        assert (error.reason, error.kind.code, error.metadata) == (
            "VERSION_NOT_SUPPORTED",
            -32009,
            {"supported": "1.0"},
        )
        assert "1.0" in error.message


def test_A80_the_header_comes_before_the_query() -> None:
    assert negotiate("1.0", "0.3", "GetTask") == "1.0"
    assert refused(negotiate, "0.3", "1.0", "GetTask").kind.code == -32009
    assert refused(negotiate, "", "1.0", "GetTask").kind.code == -32009


OF_0_3 = sorted(name for name, twin in TWINS.items() if twin.method in SERVED)


@pytest.mark.parametrize("version", [None, "", "0.3", "0.3.0"])
@pytest.mark.parametrize("method", OF_0_3)
def test_A80_a_method_of_0_3_is_of_that_version_or_of_none(version: str | None, method: str) -> None:
    assert negotiate(version, None, method) == negotiate(None, version, method) == "0.3"


@pytest.mark.parametrize("version", ["0.2", "0.4", "0.5", "0.30", "1.1", "2.0", "abc"])
@pytest.mark.parametrize("method", OF_0_3)
def test_A80_a_method_of_0_3_in_any_other_version_is_refused_with_its_own(version: str, method: str) -> None:
    error = refused(negotiate, version, None, method)
    assert (error.kind.code, error.metadata) == (-32009, {"supported": "0.3"})


@pytest.mark.parametrize("version", [None, "", "0.3", "1.0", "9.9"])
@pytest.mark.parametrize("method", ["sendMessage", "Nothing", "message/sand"])
def test_A76_a_method_of_no_version_is_unknown(version: str | None, method: str) -> None:
    assert refused(negotiate, version, None, method).kind.code == -32601


@pytest.mark.parametrize("method", TWINS)
def test_a_method_of_0_3_is_unknown_to_1_0(method: str) -> None:
    assert refused(negotiate, "1.0", None, method).kind.code == -32601


# --- sending --------------------------------------------------------------------------------------------------------


def test_a_plain_message_is_all_there() -> None:
    request = send(contextId="c-1", taskId="t-1", metadata={"skill": "echo", "k": [1]})
    assert (request.message_id, request.context_id, request.task_id) == ("m1", "c-1", "t-1")
    assert (request.text, request.skill) == ("Hello", "echo")
    assert (request.return_immediately, request.history_length, request.metadata) == (False, None, None)
    assert request.message == message(contextId="c-1", taskId="t-1", metadata={"skill": "echo", "k": [1]})


def test_what_is_kept_is_what_the_official_types_read() -> None:
    parts = [
        {"text": "a", "metadata": {"k": 1}, "mediaType": "text/markdown"},
        {"raw": "aGk_", "filename": "f", "mediaType": "text/plain"},
        {"url": "https://a.example/x"},
        {"data": None},
        {"data": {"x": [1, 2.5, None]}},
    ]
    request = send(parts=parts, extensions=["https://e"], referenceTaskIds=["t"], metadata={})
    assert ParseDict(request.message, Message(), ignore_unknown_fields=False).message_id == "m1"
    assert request.message["parts"] == parts


def test_unknown_and_unset_fields_are_fine_and_left_out() -> None:
    request = send(
        parts=[{"text": "Hello", "url": None, "kind": "text", "mediaType": None}],
        contextId="",
        taskId=None,
        kind="message",
        metadata=None,
        configuration={"blocking": True, "historyLength": None},
    )
    assert request.message == message()
    assert request.fingerprint == send().fingerprint


def test_A86_numbers_in_data_are_kept_as_sent() -> None:
    data = {"i": 1, "big": 9007199254740993, "f": 1.5, "n": None}
    (part,) = send(parts=[{"data": data}]).message["parts"]
    assert json.dumps(part) == json.dumps({"data": data})


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize(
    ("template", "field"),
    [
        (
            '{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"a"},{"data":[%s]}]}}',
            "message.parts[1].data",
        ),
        (
            '{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"a","metadata":{"x":%s}}]}}',
            "message.parts[0].metadata",
        ),
        (
            '{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"a"}],"metadata":{"x":%s}}}',
            "message.metadata",
        ),
        ('{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"a"}]},"metadata":{"x":%s}}', "metadata"),
        (
            '{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"a"}]},"configuration":{"historyLength":%s}}',
            "configuration.historyLength",
        ),
    ],
)
def test_A86_nan_and_infinity_are_refused_by_the_field(number: str, template: str, field: str) -> None:
    params = parse_envelope(envelope({}).replace(b"{}", (template % number).encode())).params
    assert refused_field(send_params, params, LIMITS) == field


def test_text_is_made_clean_once_where_it_enters() -> None:
    body = envelope({"message": message(parts=[{"text": "a\0b\ud800c"}, {"data": {"k\0": "\udfff"}}])})
    request = send_params(parse_envelope(body).params, LIMITS)
    assert request.text == "a\ufffdb\ufffdc"
    assert request.message["parts"] == [{"text": "a\ufffdb\ufffdc"}, {"data": {"k\ufffd": "\ufffd"}}]


def test_the_text_of_several_parts_is_in_order() -> None:
    assert send(parts=[{"text": "a"}, {"data": 1}, {"text": "b"}]).text == "a\nb"
    assert send(parts=[{"data": 1}]).text == ""


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("message.messageId", {"messageId": MISSING}),
        ("message.messageId", {"messageId": ""}),
        ("message.messageId", {"messageId": " "}),
        ("message.messageId", {"messageId": 5}),
        ("message.messageId", {"messageId": "a\nb"}),
        ("message.messageId", {"messageId": "x" * 257}),
        ("message.role", {"role": MISSING}),
        ("message.role", {"role": "ROLE_AGENT"}),
        ("message.role", {"role": "ROLE_UNSPECIFIED"}),
        ("message.role", {"role": "user"}),
        ("message.role", {"role": 1}),
        ("message.role", {"role": ["ROLE_USER"]}),
        ("message.contextId", {"contextId": "a b"}),
        ("message.contextId", {"contextId": "a/b"}),
        ("message.contextId", {"contextId": "x" * 129}),
        ("message.contextId", {"contextId": ["c"]}),
        ("message.taskId", {"taskId": {}}),
        ("message.taskId", {"taskId": "t" * 257}),
        ("message.metadata", {"metadata": []}),
        ("message.metadata", {"metadata": {"x": "y" * 70_000}}),
        ("message.metadata.skill", {"metadata": {"skill": "nope"}}),
        ("message.metadata.skill", {"metadata": {"skill": ["chat"]}}),
        ("message.extensions", {"extensions": "x"}),
        ("message.extensions[1]", {"extensions": ["x", 5]}),
        ("message.referenceTaskIds", {"referenceTaskIds": ["t"] * 65}),
        ("message.referenceTaskIds[0]", {"referenceTaskIds": ["t" * 3000]}),
        ("message.parts", {"parts": MISSING}),
        ("message.parts", {"parts": []}),
        ("message.parts", {"parts": {"text": "x"}}),
        ("message.parts", {"parts": [{"text": "x"}] * 10_000}),
        ("message.parts[1]", {"parts": [{"text": "x"}, "y"]}),
        ("message.parts[0]", {"parts": [{}]}),
        ("message.parts[0]", {"parts": [{"text": None}]}),
        ("message.parts[0]", {"parts": [{"kind": "text"}]}),
        ("message.parts[0]", {"parts": [{"text": "x", "data": 1}]}),
        ("message.parts[0]", {"parts": [{"text": "x", "data": None}]}),
        ("message.parts[0].text", {"parts": [{"text": 5}]}),
        ("message.parts[0].text", {"parts": [{"text": " \n\t"}]}),
        ("message.parts[0].text", {"parts": [{"text": ""}]}),
        ("message.parts[0].text", {"parts": [{"text": "x" * 1_000_001}]}),
        ("message.parts", {"parts": [{"text": " "}, {"text": ""}]}),
        ("message.parts", {"parts": [{"text": "x" * 600_000}] * 2}),
        ("message.parts[0].raw", {"parts": [{"raw": "no base64!"}]}),
        ("message.parts[0].raw", {"parts": [{"raw": "a"}]}),
        ("message.parts[0].raw", {"parts": [{"raw": "é"}]}),
        ("message.parts[0].url", {"parts": [{"url": ""}]}),
        ("message.parts[0].url", {"parts": [{"url": "u" * 3000}]}),
        ("message.parts[0].metadata", {"parts": [{"text": "x", "metadata": 5}]}),
        ("message.parts[0].filename", {"parts": [{"raw": "", "filename": 5}]}),
        ("message.parts[0].mediaType", {"parts": [{"text": "x", "mediaType": 5}]}),
        ("configuration", {"configuration": []}),
        ("configuration.returnImmediately", {"configuration": {"returnImmediately": "true"}}),
        ("configuration.returnImmediately", {"configuration": {"returnImmediately": 1}}),
        ("configuration.historyLength", {"configuration": {"historyLength": -1}}),
        ("configuration.historyLength", {"configuration": {"historyLength": "2"}}),
        ("configuration.historyLength", {"configuration": {"historyLength": 2.0}}),
        ("configuration.historyLength", {"configuration": {"historyLength": True}}),
        ("configuration.historyLength", {"configuration": {"historyLength": 2**31}}),
        ("configuration.acceptedOutputModes", {"configuration": {"acceptedOutputModes": "text/plain"}}),
        ("configuration.acceptedOutputModes[0]", {"configuration": {"acceptedOutputModes": [None]}}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_F180_a_field_that_is_wrong_is_named_as_the_client_wrote_it(field: str, change: dict[str, Any]) -> None:
    assert refused_field(send, **change) == field


def test_F180_a_refusal_never_repeats_what_was_sent() -> None:
    for change in (
        {"messageId": "s3cret\n"},
        {"role": "s3cret"},
        {"contextId": "s3cret s3cret"},
        {"metadata": {"skill": "s3cret"}},
        {"parts": [{"text": "a", "mediaType": "s3cret/x"}]},
        {"parts": [{"raw": "s3cret!"}]},
    ):
        error = refused(send, **change)
        assert "s3cret" not in json.dumps([error.message, error.violations, error.metadata])


def test_the_message_itself_is_required() -> None:
    assert refused_field(send_params, {}, LIMITS) == "message"
    assert refused_field(send_params, {"message": [1]}, LIMITS) == "message"
    assert refused_field(send_params, {"message": message(), "metadata": 5}, LIMITS) == "metadata"


@pytest.mark.parametrize("tenant", ["acme", 5, {}, False])
@pytest.mark.parametrize("parse", [send_params, get_params, cancel_params, subscribe_params])
def test_A71_there_are_no_tenants_and_none_is_heard(parse: Any, tenant: object) -> None:
    params = {"message": message(), "id": "t", "tenant": tenant}
    assert refused_field(parse, params, LIMITS) == "tenant"
    assert parse(params | {"tenant": ""}, LIMITS)


@pytest.mark.parametrize("media_type", ["text/plain", "Text/Markdown", "application/json", "text/plain; charset=utf-8"])
def test_A31_what_the_card_lists_is_taken(media_type: str) -> None:
    assert send(parts=[{"text": "x", "mediaType": media_type}])


@pytest.mark.parametrize("media_type", ["application/x-unsupported", "image/png", "text", "text/plainly", " ; "])
def test_A31_another_content_type_is_refused_before_any_task(media_type: str) -> None:
    error = refused(send, parts=[{"text": "x"}, {"raw": "dGNr", "mediaType": media_type}])
    assert (error.reason, error.kind.code, error.kind.http) == ("CONTENT_TYPE_NOT_SUPPORTED", -32005, 400)
    assert error.metadata["field"] == "message.parts[1].mediaType" and "text/plain" in error.metadata["supported"]


def test_A31_a_part_without_content_type_is_taken() -> None:
    assert send(parts=[{"raw": "dGNr"}]).message["parts"] == [{"raw": "dGNr"}]


HOOK = {
    "id": "h",
    "url": "https://hook.example/",
    "token": "t",
    "authentication": {"scheme": "Bearer", "credentials": "c"},
}


def test_A89_a_webhook_inside_a_send_is_read_with_its_credentials() -> None:
    webhook = send(configuration={"taskPushNotificationConfig": HOOK}).webhook
    assert webhook and (webhook.id, webhook.url, webhook.token) == ("h", "https://hook.example/", "t")
    assert (webhook.scheme, webhook.credentials) == ("Bearer", "c")
    assert send(configuration={"taskPushNotificationConfig": None}).webhook is None


@pytest.mark.parametrize(
    "bad", ["a\r\nX: y", "a\n", "\ra", "a\x00b", "a\tb", "sch\u00fcssel", " a", "a ", "a" * 4097, 7]
)
@pytest.mark.parametrize("field", ["token", "authentication.scheme", "authentication.credentials"])
def test_A89_what_could_end_a_header_s_line_is_in_no_webhook(field: str, bad: object) -> None:
    config: dict[str, Any] = {"url": "https://hook.example/", "authentication": {"scheme": "Bearer"}}
    holder, _, name = field.rpartition(".")
    (config[holder] if holder else config)[name] = bad
    error = refused(send, configuration={"taskPushNotificationConfig": config})
    assert error.kind.code == -32602
    assert error.violations[0][0] == f"configuration.taskPushNotificationConfig.{field}"


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({}, "url"),
        ({"url": 7}, "url"),
        ({"url": "https://hook.example/", "id": "a/b"}, "id"),
        ({"url": "https://hook.example/", "id": "a b"}, "id"),
        ({"url": "https://hook.example/", "id": "x" * 129}, "id"),
        ({"url": "https://hook.example/", "authentication": {}}, "authentication.scheme"),
        ({"url": "https://hook.example/", "authentication": {"scheme": "a b"}}, "authentication.scheme"),
        ({"url": "https://hook.example/", "authentication": "Bearer"}, "authentication"),
    ],
)
def test_A89_a_webhook_that_is_none_is_named_by_its_field(config: dict[str, Any], field: str) -> None:
    error = refused(send, configuration={"taskPushNotificationConfig": config})
    assert error.kind.code == -32602
    assert error.violations[0][0] == f"configuration.taskPushNotificationConfig.{field}"


def test_A22_whether_to_wait_is_the_clients_to_say() -> None:
    assert send(configuration={"returnImmediately": True}).return_immediately is True
    assert send(configuration={"returnImmediately": False}).return_immediately is False


@pytest.mark.parametrize("length", [0, 2, 999_999])
def test_A53_the_length_of_the_history_is_told_apart_from_unset(length: int) -> None:
    assert send(configuration={"historyLength": length}).history_length == length
    assert get_params({"id": "t", "historyLength": length}, LIMITS) == ("t", length)
    assert get_params({"id": "t"}, LIMITS).history_length is None
    assert send().history_length is None


def test_a_message_that_names_no_skill_gets_chat_or_the_only_one() -> None:
    assert send().skill == "chat"
    assert send(Limits(skills=("echo",))).skill == "echo"
    assert refused_field(send, Limits(skills=("chat",)), metadata={"skill": "echo"}) == "message.metadata.skill"


def test_A26_an_unknown_task_id_is_passed_on_to_be_looked_up() -> None:
    assert send(taskId="nope").task_id == "nope"


# --- the mark that tells a message again ----------------------------------------------------------------------------


def test_the_same_message_has_the_same_fingerprint_however_it_is_spelled() -> None:
    first = {
        "messageId": "m1",
        "role": "ROLE_USER",
        "parts": [{"data": {"a": 1, "b": [2]}, "mediaType": "application/json"}],
    }
    again = {
        "parts": [{"mediaType": "application/json", "data": {"b": [2], "a": 1}}],
        "role": "ROLE_USER",
        "messageId": "m1",
    }
    plain = send_params({"message": first}, LIMITS).fingerprint
    assert plain == send_params({"message": again, "configuration": {"returnImmediately": True}}, LIMITS).fingerprint
    assert len(plain) == 64


@pytest.mark.parametrize(
    "change",
    [
        {"parts": [{"text": "Hello!"}]},
        {"parts": [{"text": "Hello"}, {"text": "Hello"}]},
        {"parts": [{"data": "Hello"}]},
        {"parts": [{"text": "Hello", "metadata": {"k": 1}}]},
        {"contextId": "c"},
        {"taskId": "t"},
        {"metadata": {"skill": "chat"}},
        {"referenceTaskIds": ["t"]},
    ],
    ids=str,
)
def test_other_content_has_another_fingerprint(change: dict[str, Any]) -> None:
    assert send(**change).fingerprint != send().fingerprint


def test_the_order_of_a_list_is_content() -> None:
    assert send(parts=[{"data": [1, 2]}]).fingerprint != send(parts=[{"data": [2, 1]}]).fingerprint


def test_a24_a_whole_number_is_the_same_with_a_fraction_of_nothing_and_as_words_it_is_not() -> None:
    def mark(value: Any) -> str:
        return send(parts=[{"data": value}]).fingerprint

    assert mark({"i": 1, "far": [10**20, -3]}) == mark({"i": 1.0, "far": [1e20, -3.0]})
    assert len({mark(value) for value in (1, 1.5, True, "1", "1.0", "1.0,", [1], ["1.0"], ["1"])}) == 9


# --- asking about a task --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parse", [get_params, cancel_params, subscribe_params])
@pytest.mark.parametrize(
    "params", [{}, {"name": "tasks/T"}, {"id": 5}, {"id": ""}, {"id": None}, {"id": " "}, {"id": "t" * 300}], ids=str
)
def test_A104_the_id_is_required_and_named(parse: Any, params: dict[str, Any]) -> None:
    assert refused_field(parse, params, LIMITS) == "id"


@pytest.mark.parametrize("length", [-1, "2", 1.5, True, 2**31, []], ids=str)
def test_A53_a_length_that_is_none_is_refused(length: object) -> None:
    assert refused_field(get_params, {"id": "t", "historyLength": length}, LIMITS) == "historyLength"


def test_a_task_is_asked_for_by_its_id() -> None:
    assert cancel_params({"id": "t", "metadata": {"why": "x"}, "other": 1}, LIMITS).id == "t"
    assert subscribe_params({"id": "t"}, LIMITS).id == "t"
    assert refused_field(cancel_params, {"id": "t", "metadata": "x"}, LIMITS) == "metadata"


# --- depth and time -------------------------------------------------------------------------------------------------


def nested(levels: int) -> Any:
    value: Any = "x"
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


@pytest.mark.parametrize(
    ("params", "field"),
    [
        (lambda deep: {"message": message(parts=[{"text": "a"}, {"data": deep}])}, "message.parts[1].data"),
        (lambda deep: {"message": message(metadata=deep)}, "message.metadata"),
        (lambda deep: {"message": message(parts=[{"text": "a", "metadata": deep}])}, "message.parts[0].metadata"),
        (lambda deep: {"message": message(), "metadata": deep}, "metadata"),
    ],
    ids=["data", "metadata", "part metadata", "request metadata"],
)
def test_A85_data_deeper_than_32_levels_is_refused_by_its_field(params: Any, field: str) -> None:
    def asked(levels: int) -> SendRequest:
        return send_params(parse_envelope(envelope(params({"k": nested(levels - 1)}))).params, LIMITS)

    assert asked(31) and asked(32)
    for levels in (33, 34, 35, 36, 50, 101, 301):
        assert refused_field(asked, levels) == field


@pytest.mark.parametrize("levels", [40, 500])
def test_A85_the_id_is_told_where_the_body_could_be_read(levels: int) -> None:
    body = envelope({"message": message(parts=[{"data": nested(levels)}])})
    assert refused(parse_envelope, body).rpc_id == 7


def test_A85_five_thousand_levels_are_refused_in_no_time() -> None:
    body = envelope({}).replace(b"{}", b'{"message":' + b"[" * 5_000 + b"]" * 5_000 + b"}")
    started = time.thread_time()
    assert refused_field(parse_envelope, body) == "params"
    assert time.thread_time() - started < 0.5


def fastest(call: Any, times: int) -> float:
    """The shortest of several runs, in seconds of this thread's own: the machine's other work only ever adds."""
    runs = []
    for _ in range(times):
        started = time.thread_time()
        call()
        runs.append(time.thread_time() - started)
    return min(runs)


def test_A85_a_megabyte_of_data_is_read_in_a_moment() -> None:
    rows = [{"id": index, "name": "somebody", "score": 1.5, "tags": ["a", "b"]} for index in range(15_500)]
    body = envelope({"message": message(parts=[{"data": rows}])})
    assert len(body) > 1_000_000
    assert fastest(lambda: send_params(parse_envelope(body).params, LIMITS), 7) < 0.15


def test_a_plain_message_costs_next_to_nothing() -> None:
    body = envelope({"message": message()})

    def read() -> None:
        parsed = parse_envelope(body)
        negotiate("1.0", None, parsed.method)
        send_params(parsed.params, LIMITS)

    assert fastest(read, 300) < 0.0002
