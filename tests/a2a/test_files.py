"""Parts that are files: a model reads those that are text, and none is accepted that it would never see."""

import base64
from typing import Any

import pytest

from tests.a2a import wire
from tests.a2a.wire import message, said
from tests.support.scripted import ScriptedModel
from tests.support.server import Server
from web.a2a_message import FILE_CHARS


def raw(content: bytes, **fields: Any) -> dict[str, Any]:
    return {"raw": base64.b64encode(content).decode(), **fields}


@pytest.fixture
def read(shared: Server, model: ScriptedModel) -> Any:
    """Sends parts to the chat, and returns what the model was asked."""

    def read(*parts: dict[str, Any]) -> str:
        model.rules([{"text": "read"}])
        assert wire.send(shared, said(parts=list(parts)))["status"]["state"] == wire.COMPLETED
        (asked,) = model.requests()
        return asked.last_user

    return read


@pytest.mark.parametrize("media_type", ["text/plain", "text/markdown; charset=utf-8", None])
def test_a31_a_text_file_reaches_the_model_in_a_frame_with_its_name_and_type(read: Any, media_type: str | None) -> None:
    about = {"filename": "owls.md"} | ({"mediaType": media_type} if media_type else {})
    asked = read({"text": "What does it say?"}, raw("# Owls\n\nThey flüster.".encode(), **about))
    named = f"owls.md, {media_type}" if media_type else "owls.md"
    assert f"What does it say?\n\n[a file: {named}]\n# Owls\n\nThey flüster.\n[end of the file]" in asked


def test_a_file_of_json_and_one_without_a_name_are_read_too(read: Any) -> None:
    assert '[a file: application/json]\n{"a": 1}\n[end of the file]' in read(
        raw(b'{"a": 1}', mediaType="application/json")
    )
    assert "[a file: without a name]\ntck\n[end of the file]" in read(raw(b"tck"))


def test_a_file_that_is_too_long_is_cut_and_says_so(read: Any) -> None:
    asked = read(raw(b"x" * FILE_CHARS + b"12345"))
    assert f"{'x' * 100}\n[cut here: 5 more characters are not shown]" in asked and "12345" not in asked


@pytest.mark.parametrize(
    ("part", "field"),
    [
        (raw(b"\x89PNG\r\n\x1a\n"), "message.parts[1].raw"),
        (raw("grün".encode("latin-1"), mediaType="text/plain"), "message.parts[1].raw"),
        (raw(b"a\0b", mediaType="text/plain"), "message.parts[1].raw"),
        ({"url": "https://a.example/owls.md", "mediaType": "text/plain"}, "message.parts[1].url"),
        ({"url": "https://a.example/owls"}, "message.parts[1].url"),
    ],
)
@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
def test_a31_what_no_model_would_see_is_refused_by_its_part(
    shared: Server, part: dict[str, Any], field: str, method: str
) -> None:
    with wire.nothing_stored(shared):
        answer = wire.post(shared, method, {"message": said(parts=[{"text": "Look."}, part])})
    assert wire.told(answer) == (200, -32005, "CONTENT_TYPE_NOT_SUPPORTED")
    assert wire.info(answer)["field"] == field and field in wire.error(answer)["message"]


def test_s68_a_profile_without_a_model_gets_every_part_as_it_was_sent(shared: Server) -> None:
    parts = [raw(b"\x89PNG", filename="a.png"), {"url": "https://a.example/x"}, raw(b"text", mediaType="text/plain")]
    assert wire.send(shared, message(parts=parts))["artifacts"][0]["parts"] == parts
