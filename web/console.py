"""The console: its files as they stand in `static/`, and Markdown made safe to show.

Reports, answers and descriptions were written by models and strangers: nothing in them runs, loads or restyles, and
what is hidden in them is made visible. Never talks to a store, and never decides who may read what.
"""

import re
from functools import lru_cache
from html import escape
from pathlib import Path

import nh3
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC = Path(__file__).parent / "static"

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    # The files carry an ETag: asking again is cheap, and an upgraded server is never met by an old page.
    "cache-control": "no-cache",
}

# Longer texts are shown as they are written: rendering takes about 3 s a megabyte, and the event loop waits for it.
RENDERED_CHARS = 200_000
# The console reads the newest messages again after every turn; the same text need not be rendered again each time.
REMEMBERED_CHARS, REMEMBERED_TEXTS = 10_000, 256

TAGS = {"a", "blockquote", "br", "code", "em", "hr", "li", "ol", "p", "pre", "s", "strong", "ul"}
TAGS |= {"h1", "h2", "h3", "h4", "h5", "h6", "table", "tbody", "td", "th", "thead", "tr"}
ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}, "td": {"align"}, "th": {"align"}}
LINK = re.compile(r"https?://[^/]|mailto:[^/]", re.IGNORECASE)
# Controls but for tab and newline, and the marks that turn the direction of what follows them.
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Assets(StaticFiles):
    """The static files, each answer under the console's headers."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


def routes() -> list[BaseRoute]:
    """`/` and `/static/…`; nothing else is the console's."""
    assets = Assets(directory=STATIC)

    async def index(request: Request) -> Response:
        return await assets.get_response("index.html", request.scope)

    return [Route("/", index, name="console"), Mount("/static", assets, name="static")]


def render(markdown: str) -> str:
    """CommonMark, tables and strikethrough as an HTML fragment that is safe to set into the console's page.

    HTML in the text is shown as text, an image is a link to where it lies, a link that is not http, https or mailto
    stays as it was written. A text of more than `RENDERED_CHARS` characters is one preformatted block.
    """
    return _remembered(markdown) if len(markdown) <= REMEMBERED_CHARS else _render(markdown)


def visible(text: str) -> str:
    """The text with control characters and direction overrides shown as signs, so that they can do nothing."""
    return HIDDEN.sub(lambda match: f"[U+{ord(match[0]):04X}]", text)


def _render(markdown: str) -> str:
    long = len(markdown) > RENDERED_CHARS
    html = f"<pre>{escape(markdown, quote=False)}</pre>" if long else PARSER.render(markdown)
    # Signs are set last: an entity such as `&#x202E;` becomes its character only in the parser.
    return visible(CLEANER.clean(html))


_remembered = lru_cache(maxsize=REMEMBERED_TEXTS)(_render)


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    # What this refuses stays in the text as it was written, so that a reader sees what was tried.
    parser.validateLink = lambda url: bool(LINK.match(url))
    parser.core.ruler.after("inline", "plain", _plain)
    return parser


def _plain(state: StateCore) -> None:
    """Images become links, and a column's alignment an attribute: a style would be refused by the page's policy."""
    for token in state.tokens:
        if token.children:
            token.children = _without_images(token.children)
        if style := token.attrs.pop("style", None):
            token.attrs["align"] = str(style).removeprefix("text-align:")


def _without_images(tokens: list[Token]) -> list[Token]:
    plain, links = [], 0
    for token in tokens:
        links += (token.type == "link_open") - (token.type == "link_close")
        plain += _image_link(token, linked=links > 0) if token.type == "image" else [token]
    return plain


def _image_link(image: Token, linked: bool) -> list[Token]:
    source = str(image.attrs["src"])
    text = Token("text", "", 0, content=image.content or source)
    if linked:  # a link cannot stand in a link
        return [text]
    return [Token("link_open", "a", 1, attrs={"href": source}), text, Token("link_close", "a", -1)]


PARSER = _parser()
CLEANER = nh3.Cleaner(
    tags=TAGS,
    attributes=ATTRIBUTES,
    url_schemes={"http", "https", "mailto"},
    link_rel="noopener noreferrer nofollow",
    set_tag_attribute_values={"a": {"target": "_blank"}},
)
