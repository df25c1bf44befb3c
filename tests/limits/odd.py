"""Odd input for A2A: a good request of each method with something wrong in it, and bytes that are no request at all."""

import copy
import json
from typing import Any, NamedTuple

from hypothesis import strategies as st

Json = dict[str, Any]

TEXT = st.text(max_size=20) | st.sampled_from(
    [
        "",
        " ",
        "\x00",
        "\ud800",
        "a\udfffb",
        "\u202e\u2066",
        "e\u0301" * 40,
        "\x1b[2J\r\nX: y",
        "../../etc/passwd",
        "%00",
        "' or 1=1 --",
        "{{7*7}}",
        "background:x",
        "x" * 3000,
        "TASK_STATE_WORKING",
        "ROLE_AGENT",
        "1",
        "true",
        "null",
    ]
)
NUMBER = (
    st.integers(-3, 300)
    | st.sampled_from([2**31, -(2**31) - 1, 2**53 + 1, 2**63, 10**30, 10**400, -1])
    | st.floats()
    | st.just(1e308)
)
ODD = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


DEEP = st.sampled_from([31, 32, 33, 40, 100, 400]).map(nested)
GOOD: dict[str, Json] = {
    "SendMessage": {
        "message": {
            "messageId": "m",
            "contextId": "c",
            "role": "ROLE_USER",
            "parts": [{"text": "hello"}, {"data": {"a": [1]}}, {"raw": "aGVsbG8=", "mediaType": "text/plain"}],
            "metadata": {"skill": "echo"},
            "extensions": ["urn:x"],
            "referenceTaskIds": ["t"],
        },
        "configuration": {"returnImmediately": True, "historyLength": 1, "acceptedOutputModes": ["text/plain"]},
        "metadata": {"a": 1},
    },
    "GetTask": {"id": "t", "historyLength": 1},
    "ListTasks": {
        "contextId": "c",
        "status": "TASK_STATE_COMPLETED",
        "pageSize": 5,
        "pageToken": "",
        "historyLength": 0,
    },
    "CancelTask": {"id": "t", "metadata": {}},
    "SubscribeToTask": {"id": "t"},
    "CreateTaskPushNotificationConfig": {
        "taskId": "t",
        "id": "p",
        "url": "https://127.0.0.1/hook",
        "token": "x",
        "authentication": {"scheme": "Bearer", "credentials": "c"},
    },
    "GetTaskPushNotificationConfig": {"taskId": "t", "id": "p"},
    "ListTaskPushNotificationConfigs": {"taskId": "t", "pageSize": 5},
    "DeleteTaskPushNotificationConfig": {"taskId": "t", "id": "p"},
}
GOOD["SendStreamingMessage"] = GOOD["SendMessage"]
FORMER: dict[str, Json] = {
    "message/send": {
        "message": {
            "kind": "message",
            "messageId": "m",
            "role": "user",
            "parts": [{"kind": "text", "text": "hello"}, {"kind": "data", "data": {"a": 1}}],
            "metadata": {"skill": "echo"},
        },
        "configuration": {"blocking": False, "historyLength": 1},
    },
    "tasks/get": {"id": "t", "historyLength": 1},
    "tasks/list": {"contextId": "c", "status": "completed", "pageSize": 5},
    "tasks/cancel": {"id": "t"},
    "tasks/resubscribe": {"id": "t"},
    "tasks/pushNotificationConfig/set": {
        "taskId": "t",
        "pushNotificationConfig": {"id": "p", "url": "https://x.test/"},
    },
    "tasks/pushNotificationConfig/get": {"id": "t", "pushNotificationConfigId": "p"},
    "tasks/pushNotificationConfig/list": {"id": "t"},
    "tasks/pushNotificationConfig/delete": {"id": "t", "pushNotificationConfigId": "p"},
}
FORMER["message/stream"] = FORMER["message/send"]


class Odd(NamedTuple):
    """A method, and the params that it is asked with."""

    method: str
    params: Any


@st.composite
def requests(draw: st.DrawFn, good: dict[str, Json]) -> Odd:
    """A good request, a new message id in it, and up to three things wrong."""
    method = draw(st.sampled_from(sorted(good)))
    params = copy.deepcopy(good[method])
    if "message" in params:
        params["message"]["messageId"] = draw(st.uuids()).hex
    for _ in range(draw(st.integers(0, 3))):
        params = _spoilt(draw, params)
    return Odd(method, params)


def _spoilt(draw: st.DrawFn, value: Any) -> Any:
    """The value with another one somewhere in it, or one less, or one more."""
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 5)) == 0:
        return draw(ODD | DEEP)
    inside: dict[Any, Any] = value if isinstance(value, dict) else dict(enumerate(value))
    key = draw(st.sampled_from(sorted(inside, key=str)))
    what = draw(st.integers(0, 9))
    if what == 0:
        inside.pop(key)
    elif what == 1:
        inside[draw(TEXT) if isinstance(value, dict) else len(inside)] = draw(ODD)
    else:
        inside[key] = _spoilt(draw, inside[key])
    return inside if isinstance(value, dict) else list(inside.values())


@st.composite
def bodies_of(draw: st.DrawFn, sent: bytes) -> bytes:
    """Mostly these bytes, sometimes with others among them."""
    if draw(st.booleans()):
        return sent
    place = draw(st.integers(0, len(sent)))
    return sent[:place] + draw(st.binary(min_size=1, max_size=3)) + sent[place + draw(st.integers(0, 2)) :]


@st.composite
def bodies(draw: st.DrawFn, value: Any) -> bytes:
    """A value as bytes: mostly as its JSON, sometimes cut off, said twice, in another coding, or not at all."""
    text = json.dumps(value).encode()
    match draw(st.integers(0, 19)):
        case 0:
            return text[: draw(st.integers(0, len(text)))]
        case 1:
            return text.replace(b"{", b'{"id":1,"id":{},', 1)
        case 2:
            return text.decode().encode("utf-16")
        case 3:
            return b"\xef\xbb\xbf" + text
        case 4:
            return text + draw(st.binary(max_size=8))
        case 5:
            return draw(st.binary(max_size=60))
        case 6:
            place = draw(st.integers(0, len(text)))
            return text[:place] + draw(st.binary(min_size=1, max_size=3)) + text[place + 1 :]
        case 7:
            return b"[" * draw(st.sampled_from([10, 50_000])) + text
    return text


HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "Content-Type": st.sampled_from(
            ["application/json", "text/plain", "application/a2a+json", "application/json; charset=latin-1", "", "x/y/z"]
        ),
        "A2A-Version": st.sampled_from(["1.0", "0.3", "", "2.0", "1", "1.0.99", "x" * 500, "1.0, 0.3"]),
        "A2A-Extensions": st.sampled_from(["", "urn:x", "," * 500]),
        "Content-Encoding": st.sampled_from(["gzip", "br", "nonsense"]),
        "Accept": st.sampled_from(["text/event-stream", "application/xml", "*/*"]),
    },
)
