"""Markdown as the console shows it: everything can be read, nothing runs, loads, restyles or hides. And its files."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette

from web.console import RENDERED_CHARS, STATIC, render, routes

HARMLESS = {
    *("a", "blockquote", "br", "code", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s"),
    *("strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
ATTRIBUTES = {("a", "href"), ("a", "title"), ("a", "rel"), ("a", "target"), ("ol", "start")}
ATTRIBUTES |= {("td", "align"), ("th", "align")}

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "<style>body{display:none}</style>",
    "<svg/onload=alert(1)>",
    "<iframe src=javascript:alert(1)></iframe>",
    "[a](javascript:alert(1))",
    "[a](JaVaScRiPt:alert(1))",
    "[a](&#106;avascript:alert(1))",
    "[a](data:text/html;base64,PHNjcmlwdD4=)",
    "[a](vbscript:x)",
    "[a](//elsewhere.example/x)",
    "[a](/api/sessions)",
    "<javascript:alert(1)>",
    '[a](https://x.example "onmouseover=alert(1)")',
    "![beacon](http://beacon.example/x.png)",
    "![x](data:image/svg+xml;base64,PHN2Zz4=)",
    "[a]: javascript:alert(1)\n\n[a]",
    "`<script>`\n\n```\n</pre><script>alert(1)</script>\n```",
    "| a |\n|---|\n| <img src=x onerror=alert(1)> |",
    '<a href="https://x.example" onclick=alert(1)>a</a>',
]


class Seen(HTMLParser):
    """What a browser would find in a fragment."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def links(self) -> list[str]:
        return [value for _, name, value in self.attributes if name == "href"]


def assert_harmless(html: str) -> None:
    seen = Seen(html)
    assert seen.tags <= HARMLESS
    assert {(tag, name) for tag, name, _ in seen.attributes} <= ATTRIBUTES
    assert all(re.match(r"(https?|mailto):", link) for link in seen.links)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)


@pytest.mark.parametrize("markdown", HOSTILE)
def test_hostile_markdown_does_nothing_s77(markdown: str) -> None:
    assert_harmless(render(markdown))


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("<>[]()!|`*_~&#;:/\\\"'= \nax-\x1b\u202e") | st.characters(codec="utf-8"), max_size=80))
def test_whatever_is_written_does_nothing(markdown: str) -> None:
    assert_harmless(render(markdown))


@pytest.mark.parametrize("markdown", ["<img src=x onerror=alert(1)>", "[a](javascript:alert(1))", "[a](/api/sessions)"])
def test_what_is_refused_can_still_be_read(markdown: str) -> None:
    assert Seen(render(markdown)).text.strip() == markdown


def test_links_go_to_a_page_of_their_own_and_tell_it_nothing() -> None:
    seen = Seen(render("[a](https://x.example/y) and <mailto:a@b.example>"))
    assert seen.links == ["https://x.example/y", "mailto:a@b.example"]
    for name, value in (("target", "_blank"), ("rel", "noopener noreferrer nofollow")):
        assert seen.attributes.count(("a", name, value)) == 2


def test_an_image_is_a_link_and_loads_nothing_f155() -> None:
    seen = Seen(render("![A chart](https://x.example/chart.png)"))
    assert (seen.links, seen.text.strip(), "img" in seen.tags) == (["https://x.example/chart.png"], "A chart", False)


def test_an_image_without_words_is_named_by_its_address() -> None:
    assert Seen(render("![](https://x.example/chart.png)")).text.strip() == "https://x.example/chart.png"


def test_an_image_in_a_link_leaves_the_link_and_its_words() -> None:
    seen = Seen(render("[![A chart](https://x.example/chart.png)](https://y.example/)"))
    assert (seen.links, seen.text.strip()) == (["https://y.example/"], "A chart")


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "[U+001B][31mred[U+001B][0m"),
        ("invoice\u202efdp.exe", "invoice[U+202E]fdp.exe"),
        ("invoice&#x202E;fdp.exe", "invoice[U+202E]fdp.exe"),
        ("a\u2066b\u2069", "a[U+2066]b[U+2069]"),
        ("a\x07b\x9bc", "a[U+0007]b[U+009B]c"),
    ],
)
def test_controls_and_turned_directions_are_shown_as_signs_s77(markdown: str, shown: str) -> None:
    assert Seen(render(markdown)).text.strip() == shown


def test_right_to_left_text_emoji_and_tabs_stay_as_they_are() -> None:
    text = "שלום עולם, 👩‍👩‍👧 and\ttab"
    assert Seen(render(text)).text.strip() == text


def test_tables_keep_their_columns_alignment_and_strikethrough_works() -> None:
    seen = Seen(render("| a | b |\n|:--|--:|\n| 1 | ~~2~~ |"))
    assert {"table", "s"} <= seen.tags
    assert [value for _, name, value in seen.attributes if name == "align"] == ["left", "right", "left", "right"]


def test_a_very_long_text_is_shown_whole_and_as_it_is_written() -> None:
    text = "**<b>\n" * (RENDERED_CHARS // 6) + "the very end"
    seen = Seen(render(text))
    assert (seen.tags, seen.text) == ({"pre"}, text)


def test_a_text_at_the_limit_is_still_rendered() -> None:
    assert "strong" in Seen(render("**a** ".ljust(RENDERED_CHARS, "b"))).tags


def get(run: Callable[..., Any], path: str, method: str = "GET", **headers: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=Starlette(routes=routes()))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, headers=headers)

    return run(ask())


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/static/base.css"])
def test_every_file_says_what_a_page_may_do_f155(run: Callable[..., Any], path: str) -> None:
    answer = get(run, path)
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self' data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html"),
        ("/static/main.js", "javascript"),
        ("/static/chat.css", "text/css"),
        ("/static/icon.svg", "svg"),
    ],
)
def test_a_file_comes_with_its_type(run: Callable[..., Any], path: str, kind: str) -> None:
    assert kind in get(run, path).headers["content-type"]


@pytest.mark.parametrize("path", ["/", "/static/main.js"])
def test_a_file_that_did_not_change_is_not_sent_again(run: Callable[..., Any], path: str) -> None:
    first = get(run, path)
    assert first.headers["cache-control"] == "no-cache"
    again = get(run, path, **{"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/static/", "/static/nothing.js", "/static/../console.py", "/static/%2e%2e/console.py"]
)
def test_nothing_but_the_files_is_served(run: Callable[..., Any], path: str) -> None:
    assert get(run, path).status_code == 404


def test_the_page_takes_no_other_method(run: Callable[..., Any]) -> None:
    assert get(run, "/", "POST").status_code == 405


def test_no_file_names_anything_outside_f155() -> None:
    for file in STATIC.iterdir():
        text = file.read_text("utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?://|//\w+\.\w+/|@import|url\(", text), file.name


def test_what_the_files_name_of_each_other_is_there() -> None:
    names = {file.name for file in STATIC.iterdir()}
    page = (STATIC / "index.html").read_text("utf-8")
    named = set(re.findall(r'"/static/([\w.]+)"', page))
    for script in STATIC.glob("*.js"):
        named |= set(re.findall(r'from "\./([\w.]+)"', script.read_text("utf-8")))
    assert named == names - {"index.html"}


def test_the_page_holds_no_script_or_style_that_its_policy_would_refuse() -> None:
    page = (STATIC / "index.html").read_text("utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*src=)", page)


def test_html_is_set_in_one_place_alone() -> None:
    setting = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment")
    assert [file.name for file in STATIC.glob("*.js") if setting.search(file.read_text("utf-8"))] == ["dom.js"]


def test_every_sheet_declares_the_same_layers_first_so_that_load_order_decides_nothing_f148() -> None:
    first = {re.findall(r"^@layer .*;$", sheet.read_text("utf-8"), re.MULTILINE)[0] for sheet in STATIC.glob("*.css")}
    assert first == {"@layer base, chat, cards, jobs, login, adding;"}
