"""The texts of files and folders: which are taken, in what order, why others are not, and what stands in one.

Takes what is text, a page or a PDF and named so. It reads; who may have what read is the caller's to know.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.converting import Converted, Unreadable, text_of

MEDIA_TYPES = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".txt": "text/plain",
    ".html": "text/html",
    ".htm": "text/html",
    ".pdf": "application/pdf",
}
MAX_BYTES = 4 * 1024 * 1024  # of a text
MAX_PACKED = 32 * 1024 * 1024  # of what text is made of
MAX_CHARS = 4_000_000
_PACKED = ("text/html", "application/pdf")


@dataclass(frozen=True)
class Found:
    """A file that is to be taken; one that is not says `why`, and whether that is a failure."""

    path: Path
    why: str | None = None
    failed: bool = False


def texts_below(path: Path) -> Iterator[Found]:
    """What somebody may have meant by a path: the file itself, which may be hidden, or all below a folder, by name."""
    if path.is_dir():
        yield from _walk(path)
    elif not path.exists():
        yield Found(path, "no such file or folder", failed=True)
    elif path.suffix.lower() not in MEDIA_TYPES:
        yield Found(path, f"not named {', '.join(MEDIA_TYPES)}")
    else:
        yield Found(path)


def _walk(folder: Path) -> Iterator[Found]:
    unreadable: list[Found] = []

    def note(problem: OSError) -> None:
        unreadable.append(Found(Path(problem.filename), problem.strerror or "cannot be read", failed=True))

    for at, folders, files in os.walk(folder, onerror=note):
        yield from unreadable
        unreadable.clear()
        texts = [name for name in files if Path(name).suffix.lower() in MEDIA_TYPES]
        yield from (Found(Path(at) / name, "hidden") for name in sorted([*folders, *texts]) if name.startswith("."))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Found(Path(at) / name) for name in sorted(texts) if not name.startswith("."))
    yield from unreadable


async def text_in(file: Path) -> Converted:
    """The file's text and title. Raises `Unreadable` for what has none or is too large, and OSError."""
    media_type = MEDIA_TYPES.get(file.suffix.lower(), "application/octet-stream")
    packed = media_type in _PACKED
    made = await text_of(media_type, _bytes_of(file, MAX_PACKED if packed else MAX_BYTES))
    if packed and len(made.text) > MAX_CHARS:
        raise Unreadable(f"its text is longer than {MAX_CHARS:,} characters")
    return made


def _bytes_of(file: Path, most: int) -> bytes:
    if not file.is_file():  # a pipe or a device would be read for ever
        raise Unreadable("not a file")
    with file.open("rb") as content:
        found = content.read(most + 1)
    if len(found) > most:
        raise Unreadable(f"larger than {most // 1024 // 1024} MiB")
    return found
