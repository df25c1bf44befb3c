"""Text out of what a file or an address holds: plain text as it is, pages and PDFs as Markdown.

What somebody else wrote is taken apart in a process of its own (`converter.py`), with bounds of time and memory, which is
killed when they are passed or nobody waits any more. It reads no file and no address.
"""

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

CONVERT_S = 30.0
PDF = "application/pdf"
PAGES = ("text/html", "application/xhtml+xml")
TEXTS = ("application/json", "application/xml", "application/yaml", "application/toml")
PROGRAM = Path(__file__).with_name("converter.py")


class Unreadable(Exception):
    """No text can be had of it; `str()` says why, and holds nothing of it."""


@dataclass(frozen=True)
class Converted:
    """A text, and what it calls itself; empty where it does not say."""

    title: str
    text: str = field(repr=False)


async def text_of(media_type: str, body: bytes, charset: str | None = None) -> Converted:
    """The text of a body of this type, never empty. Raises `Unreadable`."""
    if media_type in PAGES or media_type == PDF:
        made = await _in_a_process(media_type, body, charset)
    elif _is_text(media_type):
        made = Converted("", _plain(body, charset))
    else:
        raise Unreadable(f"there is no text in what is of the type {media_type}")
    if not made.text.strip():
        raise Unreadable("there is no text in it")
    return made


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type in TEXTS or media_type.endswith(("+json", "+xml"))


def _plain(body: bytes, charset: str | None) -> str:
    if b"\0" in body and not (charset or "").lower().startswith("utf-16"):
        raise Unreadable("it is binary")
    try:
        return body.decode(charset or "utf-8-sig")
    except (UnicodeDecodeError, LookupError):
        raise Unreadable(f"it is not {charset or 'UTF-8'} text") from None


async def _in_a_process(media_type: str, body: bytes, charset: str | None) -> Converted:
    command = [sys.executable, "-I", str(PROGRAM), media_type, charset or ""]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env={}
    )
    try:
        async with asyncio.timeout(CONVERT_S):
            said, _ = await process.communicate(body)
    except TimeoutError:
        raise Unreadable(f"it took longer than {CONVERT_S:g} s to read") from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode:
        raise Unreadable("it is too large or too deep to be read")
    made = json.loads(said)
    if "unreadable" in made:
        raise Unreadable(made["unreadable"])
    return Converted(made["title"], made["text"])
