"""What of an answer is more than its text: named artifacts, structured data, files and links, as `/api` and the console show it.

Everything in it was made by a model or a plugin, or came from a stranger: it is text to be shown and bytes to be kept,
and nothing that a browser may open. It reads no row.
"""

import base64
import json
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from background.errors import not_found
from background.results import Result
from web.console import render, visible

Json = dict[str, Any]

DATA_CHARS = 20_000  # of structured data that a log shows; the rest is in its file
NAME_CHARS = 200
# Whatever a file says it is, a browser saves it and runs nothing of it.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-store",
}


def shown(result: Result, address: str, *, html: bool) -> list[Json]:
    """The artifacts, if there is more to them than their text: `{"name", "parts"}`; else none. `address` is theirs.

    A part has a `kind`: `text` (with `html` also as that), `data` (its JSON in `text`, `cut` where that is only the
    beginning), `file` or `link`; the second and third have an `href` where their content is.
    """
    if not any(_is_more(artifact) for artifact in result.artifacts):
        return []
    return [
        {
            "name": artifact.get("name"),
            "parts": [
                _part(part, f"{address}/{place}/{number}", html) for number, part in enumerate(artifact["parts"], 1)
            ],
        }
        for place, artifact in enumerate(result.artifacts, 1)
    ]


def _is_more(artifact: Json) -> bool:
    return "name" in artifact or any("text" not in part for part in artifact["parts"])


def _part(part: Json, href: str, html: bool) -> Json:
    if "text" in part:
        return {"kind": "text", "text": part["text"]} | ({"html": render(part["text"])} if html else {})
    if "data" in part:
        return {"kind": "data", **_data(part["data"]), "href": href}
    about = {"name": part.get("filename"), "media_type": part.get("mediaType")}
    if "raw" in part:
        return {"kind": "file", **about, "bytes": len(_bare(part["raw"])) * 3 // 4, "href": href}
    return {"kind": "link", **about, "url": part["url"]}


def _data(value: Any) -> Json:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > DATA_CHARS:  # to set a megabyte out in lines takes long, and nobody reads it here
        return {"text": text[:DATA_CHARS], "cut": True}
    return {"text": json.dumps(value, ensure_ascii=False, indent=2), "cut": False}


def content(result: Result | None, artifact: str, part: str) -> Response:
    """The content of a file or of structured data, as a download; the places count from 1. Raises `not_found`."""
    found = _at(_at(result.artifacts if result else [], artifact)["parts"], part)
    if "raw" in found:
        bare = _bare(found["raw"])
        body = base64.b64decode(bare + "=" * (-len(bare) % 4))
        return _download(body, found.get("filename") or f"{artifact}-{part}.bin", "application/octet-stream")
    if "data" in found:
        body = json.dumps(found["data"], ensure_ascii=False, indent=2).encode()
        return _download(body, found.get("filename") or f"{artifact}-{part}.json", "application/json")
    raise not_found("part with a content of its own")


def _at(listed: list[Json], place: str) -> Json:
    number = int(place) if place.isascii() and place.isdigit() and len(place) < 6 else 0
    if not 1 <= number <= len(listed):
        raise not_found("part")
    return listed[number - 1]


def _bare(raw: str) -> str:
    """Base64 in the one alphabet, without its padding."""
    return raw.replace("-", "+").replace("_", "/").rstrip("=")


def _download(body: bytes, name: str, media_type: str) -> Response:
    last = visible(name).replace("\\", "/").rpartition("/")[2].strip(". ")[:NAME_CHARS] or "file"
    headers = {**HEADERS, "Content-Disposition": f"attachment; filename*=UTF-8''{quote(last, safe='')}"}
    return Response(body, media_type=media_type, headers=headers)
