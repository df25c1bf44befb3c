"""What every binding reads in the same way: a body to its end, and a version."""

import asyncio
from typing import Any

import pytest

from web.a2a_call import body_of, versions
from web.a2a_errors import A2AError
from web.bodies import BODY_LIMIT

PIECE = 65_536


def read(*messages: dict[str, Any]) -> bytes:
    waiting = list(messages)

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    return asyncio.run(body_of({"headers": []}, receive))


def piece(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_in_pieces_is_read_to_its_end() -> None:
    assert read(piece(b"ab"), {"type": "http.request", "more_body": True}, piece(b"c", more=False)) == b"abc"
    assert read({"type": "http.request"}) == b""


def test_a84_a_body_that_is_too_large_is_read_no_further_than_that() -> None:
    pieces = [piece(b"x" * PIECE)] * (BODY_LIMIT // PIECE + 1)  # and none more: to ask for it would fail
    with pytest.raises(A2AError) as caught:
        read(*pieces)
    assert caught.value.reason == "REQUEST_TOO_LARGE"


def test_a_client_that_leaves_before_its_body_is_whole_has_asked_for_nothing_and_failed_nothing() -> None:
    with pytest.raises(A2AError) as caught:
        read(piece(b'{"message"'), {"type": "http.disconnect"})
    assert caught.value.reason == "INVALID_REQUEST"


@pytest.mark.parametrize(
    ("headers", "query", "found"),
    [
        ([], b"", (None, None)),
        ([(b"a2a-version", b"1.0")], b"A2A-Version=0.3", ("1.0", None)),
        ([(b"a2a-version", b"")], b"A2A-Version=1.0", ("", None)),
        ([(b"host", b"x")], b"A2A-Version=1.0&x=y", (None, "1.0")),
        ([(b"a2a-version", b"1.0"), (b"a2a-version", b"1.0")], b"", ("1.0", None)),
        ([(b"a2a-version", b"1.0"), (b"a2a-version", b"2.0")], b"", ("1.0, 2.0", None)),  # which is none
    ],
)
def test_a80_a_version_in_the_headers_is_all_that_counts(headers: Any, query: bytes, found: Any) -> None:
    assert versions({"headers": headers, "query_string": query}) == found
