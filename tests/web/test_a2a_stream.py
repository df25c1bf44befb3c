"""The one writer of streams, in the words of whichever binding it writes for."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from typing import Any

import pytest

from web import a2a_stream
from web.a2a_errors import A2AError
from web.a2a_stream import Stream, Telling

SCOPE = {"type": "http", "asgi": {"spec_version": "2.4"}}


async def told(*items: Any) -> AsyncGenerator[Any, None]:
    for item in items:
        if isinstance(item, Exception):
            raise item
        yield item


def written(*items: Any, read: int = 100) -> tuple[list[str], bool]:
    """What a client finds that reads so many messages at once and the rest late; and whether the place is free again."""
    found: list[str] = []
    freed: list[bool] = []

    async def send(message: dict[str, Any]) -> None:
        if len(found) >= read and message.get("more_body"):
            await asyncio.Event().wait()
        found.append(message.get("body", b"").decode())

    async def receive() -> dict[str, Any]:
        return await asyncio.Event().wait()  # type: ignore[return-value]

    place = ExitStack()
    place.callback(freed.append, True)
    telling = Telling(told(*items), place, 5)
    stream = Stream(telling, lambda item: f"<{item['n']}>", lambda error: f"<!{error.reason}>")
    asyncio.run(stream(SCOPE, receive, send))  # type: ignore[arg-type]
    return found[1:], bool(freed)


def test_items_are_written_as_frames_and_nothing_new_as_a_comment() -> None:
    assert written({"n": 1}, None, {"n": 2}) == (["<1>", ": alive\n\n", "<2>", ""], True)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [(A2AError("STREAM_EXPIRED"), "STREAM_EXPIRED"), (RuntimeError("secret: x"), "INTERNAL_ERROR")],
    ids=lambda value: type(value).__name__,
)
def test_a38_a73_why_it_ends_early_is_its_last_frame_and_its_place_is_free(failure: Exception, reason: str) -> None:
    assert written({"n": 1}, failure) == (["<1>", f"<!{reason}>", ""], True)


def test_a40_who_does_not_read_finds_whole_frames_and_last_that_it_was_too_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(a2a_stream, "SLOW_S", 0.05)
    assert written({"n": 1}, {"n": 2}, {"n": 3}, read=2) == (["<1>", "<!STREAM_TOO_SLOW>"], True)
