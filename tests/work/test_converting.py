"""Text out of pages and PDFs: what of it is text, and what is said where there is none. `fetch_page` reads by the same road."""

import asyncio

import pytest

from agent import converting
from agent.converting import Converted, Unreadable, text_of
from tests.work import pages


def made(media_type: str, body: bytes, charset: str | None = None) -> Converted:
    return asyncio.run(text_of(media_type, body, charset))


def test_a_page_is_its_own_text_as_markdown() -> None:
    found = made("text/html", pages.HTML.encode())
    assert found.title == "Owls & mice"
    assert found.text == (
        "# Owls\n\nThey **hunt** at night.\n\n- mice\n- voles\n\n| owl | prey |\n| --- | --- |\n| barn | mouse |"
    )


def test_a_pdf_is_the_text_of_its_pages() -> None:
    found = made("application/pdf", pages.pdf("Owls hunt mice."))
    assert (found.title, found.text) == ("About Owls hunt mice.", "## Page 1\n\nOwls hunt mice.")


@pytest.mark.parametrize(
    ("media_type", "body", "charset", "text"),
    [
        ("text/plain", "\ufeffgrün".encode(), None, "grün"),
        ("text/plain", "grün".encode("latin-1"), "iso-8859-1", "grün"),
        ("text/html", "<p>grün".encode("latin-1"), "iso-8859-1", "grün"),
        ("application/json", b'{"a": 1}', None, '{"a": 1}'),
    ],
)
def test_what_is_text_is_read_in_the_encoding_that_it_says(
    media_type: str, body: bytes, charset: str | None, text: str
) -> None:
    assert made(media_type, body, charset).text == text


@pytest.mark.parametrize(
    ("media_type", "body", "why"),
    [
        ("image/png", b"\x89PNG", "there is no text in what is of the type image/png"),
        ("text/plain", b"a\0b", "it is binary"),
        ("text/plain", b"\xe4", "it is not UTF-8 text"),
        ("text/plain", b" \n", "there is no text in it"),
        ("text/html", b"<script>only()</script>", "there is no text in it"),
        ("application/pdf", b"%PDF-1.4 junk", "it is damaged"),
        ("application/pdf", pages.pdf(""), "it is a PDF without text, perhaps of scanned pages"),
        ("application/pdf", pages.pdf("secret", "password"), "it is a PDF with a password"),
    ],
)
def test_where_there_is_no_text_it_is_said_why(media_type: str, body: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        made(media_type, body)


def test_what_takes_too_long_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converting, "CONVERT_S", 0.05)
    with pytest.raises(Unreadable, match=r"it took longer than 0\.05 s"):
        made("text/html", b"<div>" * 200_000 + b"deep")
