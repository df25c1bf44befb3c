"""A2A asked with anything, over each binding: a clear answer in the binding's form, and never a failure of ours."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.a2a import over_grpc
from tests.a2a.over_grpc import Grpc, Unsayable
from tests.limits import odd, raw
from tests.limits.odd import Odd
from tests.limits.telling import WORDS
from tests.support.server import Server
from web.a2a_errors import KINDS
from web.a2a_rest import ROADS, Road

FEW, MANY = 120, 2000
CODES = {kind.code for kind in KINDS.values()}
V1 = {"A2A-Version": "1.0"}


def trying(examples: int) -> settings:
    return settings(
        max_examples=examples,
        phases=[Phase.generate],  # a failure is shown as it was found
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


def read(server: Server, method: str, address: str, **asked: Any) -> httpx.Response:
    """The answer; of a stream that goes on, its first frame."""
    with server.http.stream(method, address, **asked) as answer:
        if answer.headers["content-type"].startswith("text/event-stream"):
            first = next(answer.iter_lines(), "")
            return httpx.Response(answer.status_code, content=first.removeprefix("event: error").removeprefix("data: "))
        answer.read()
    return answer


def reason_of(error: dict[str, Any]) -> str:
    details = error.get("data") or error["details"]
    return details[0]["reason"]


def assert_envelope(answer: httpx.Response) -> None:
    """One JSON-RPC envelope, with a result or an error of the table."""
    told = f"{answer.status_code} {answer.content[:1500]!r}"
    body = answer.json()
    assert body["jsonrpc"] == "2.0" and ("error" in body) != ("result" in body), told
    if "result" in body:
        assert answer.status_code == 200, told
        return
    assert body["error"]["code"] in CODES and reason_of(body["error"]) != "INTERNAL_ERROR", told
    assert answer.status_code in (200, 503, 504), told
    assert not WORDS.search(answer.content) and len(answer.content) < 4000, told


def assert_rest(answer: httpx.Response) -> None:
    """A result, or an error in the form of the binding, with its own status."""
    told = f"{answer.status_code} {answer.content[:1500]!r}"
    if answer.status_code == 200:
        answer.json()
        return
    error = answer.json()["error"]
    assert error["code"] == answer.status_code and reason_of(error) != "INTERNAL_ERROR", told
    assert not WORDS.search(answer.content) and len(answer.content) < 4000, told


# --- JSON-RPC ---------------------------------------------------------------------------------------------------------


def envelopes(asked: Odd) -> st.SearchStrategy[Any]:
    """Around a request, mostly what belongs there."""
    good = {"jsonrpc": "2.0", "id": 1, "method": asked.method, "params": asked.params}
    spoilt = st.builds(lambda key, value: good | {key: value}, st.sampled_from(sorted(good)), odd.ODD)
    return st.just(good) | st.just(good) | spoilt | odd.ODD | st.just([good, good])


def over_json_rpc(server: Server, examples: int, good: dict[str, Any], version: dict[str, str]) -> None:
    @trying(examples)
    @given(st.data())
    def each(data: st.DataObject) -> None:
        asked = data.draw(odd.requests(good))
        body = data.draw(odd.bodies(data.draw(envelopes(asked))))
        assert_envelope(read(server, "POST", "/a2a", content=body, headers=version | data.draw(odd.HEADERS)))

    each()


def over_rest(server: Server, examples: int) -> None:
    roads: dict[str, list[Road]] = {}
    for road in ROADS:
        roads.setdefault(road.method, []).append(road)

    @trying(examples)
    @given(st.data())
    def each(data: st.DataObject) -> None:
        asked = data.draw(odd.requests(odd.GOOD))
        road = data.draw(st.sampled_from(roads[asked.method]))
        left = dict(asked.params) if isinstance(asked.params, dict) else {"x": asked.params}
        path = road.path
        for name in ("id", "taskId"):
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", _quoted(left.pop(name, "t")))
        body = data.draw(odd.bodies(left if road.body != "none" else {}))
        query = {} if road.body == "must" else {_plain(name): _plain(value) for name, value in left.items()}
        headers = V1 | data.draw(odd.HEADERS)
        answer = read(server, road.verb, f"/a2a/rest{path}", params=query, content=body, headers=headers)
        assert_rest(answer)

    each()


def _plain(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "replace")[:2000]


def _quoted(value: Any) -> str:
    return "".join(f"%{byte:02x}" for byte in _plain(value)) or "t"


def over_bytes(server: Server, examples: int) -> None:
    """Messages of protocol buffers; what these cannot say is bytes, which mostly are no message."""
    methods = sorted(odd.GOOD)

    @trying(examples)
    @given(st.data())
    def each(data: st.DataObject) -> None:
        asked = data.draw(odd.requests(odd.GOOD))
        sent = data.draw(_messages(asked) | st.binary(max_size=80))
        method = asked.method if data.draw(st.booleans()) else data.draw(st.sampled_from(methods))
        answer = Grpc().post(server, method, sent, **_ascii(data.draw(odd.HEADERS)))
        assert answer.reason != "INTERNAL_ERROR" and not WORDS.search(str(answer.details).encode()), answer

    each()


def _messages(asked: Odd) -> st.SearchStrategy[bytes]:
    try:
        return odd.bodies_of(over_grpc.message(asked.method, asked.params))
    except (
        Unsayable,
        AttributeError,
        TypeError,
        ValueError,
        RecursionError,
        SystemError,
    ):  # the protocol's own writer refuses it
        return st.binary(max_size=80)


def _ascii(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("A2A") and value}


def test_a76_odd_requests_over_grpc(server: Server) -> None:
    over_bytes(server, FEW)


@pytest.mark.slow
def test_a76_many_odd_requests_over_grpc(server: Server) -> None:
    over_bytes(server, MANY)


def test_a76_odd_requests_over_json_rpc(server: Server) -> None:
    over_json_rpc(server, FEW, odd.GOOD, V1)


def test_a76_odd_requests_of_0_3(server: Server) -> None:
    over_json_rpc(server, FEW, odd.FORMER, {})


def test_a76_odd_requests_over_http_json(server: Server) -> None:
    over_rest(server, FEW)


@pytest.mark.slow
def test_a76_many_odd_requests_over_json_rpc(server: Server) -> None:
    over_json_rpc(server, MANY, odd.GOOD, V1)


@pytest.mark.slow
def test_a76_many_odd_requests_of_0_3(server: Server) -> None:
    over_json_rpc(server, MANY, odd.FORMER, {})


@pytest.mark.slow
def test_a76_many_odd_requests_over_http_json(server: Server) -> None:
    over_rest(server, MANY)


# --- bodies that come in no good way ----------------------------------------------------------------------------------

BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "t"}}).encode()
POST = b"POST /a2a HTTP/1.1\r\nHost: 127.0.0.1\r\nA2A-Version: 1.0\r\n"


def test_a76_a_body_may_come_in_chunks_of_any_size(server: Server) -> None:
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY)
    answer = raw.sent(server, POST + b"Transfer-Encoding: chunked\r\n\r\n", chunks, b"0\r\n\r\n")
    assert answer.status == 200 and json.loads(answer.body)["error"]["code"] == -32001


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 100000\r\n\r\n" + BODY,
        b"Transfer-Encoding: chunked\r\n\r\n10\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    ],
    ids=["length", "chunk", "huge chunk"],
)
def test_a76_a_body_that_never_comes_whole_costs_nobody_anything(server: Server, rest: bytes) -> None:
    with raw.begun(server, POST + rest):
        assert server.http.get("/healthz").status_code == 200
    assert server.rpc("GetTask", {"id": "t"})["error"]["code"] == -32001
