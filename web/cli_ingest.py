"""Finds the texts that `outrider ingest` takes, and hands them to the server one by one.

Takes what is text and named so; says of everything else that somebody may have meant why it was left out.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from background.text import clean as storable
from web.cli_views import line
from web.client import Client, Refused

MEDIA_TYPES = {".md": "text/markdown", ".markdown": "text/markdown", ".txt": "text/plain"}
MAX_BYTES = 4 * 1024 * 1024
# Every further file would be answered in the same way.
HOPELESS = (401, 403)

Say = Callable[[str], None]


class Unfit(Exception):
    """A file that is not taken; the message says why."""


@dataclass
class Counts:
    """What became of the files."""

    taken: int = 0
    replaced: int = 0
    chunks: int = 0
    skipped: int = 0
    failed: int = 0

    def __str__(self) -> str:
        taken = f"{_count(self.taken, 'document')} taken"
        replaced = f" ({self.replaced} of them in place of an older one)" if self.replaced else ""
        return f"{taken}{replaced}, {_count(self.chunks, 'chunk')}; {self.skipped} skipped, {self.failed} failed"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def ingest(client: Client, paths: Iterable[Path], err: Console) -> Counts:
    """Sends every text below `paths`, with lines and a progress bar on `err`. Raises `Away`.

    A document's name is its file's absolute path, so that the same file taken again replaces it, from wherever.
    """
    counts = Counts()

    def say(text: str) -> None:  # above the bar, if there is one
        err.print(line(text), markup=False, soft_wrap=True)

    files = list(_files(paths, counts, say))
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        console=err,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not err.is_terminal,
    ) as progress:
        bar = progress.add_task("", total=len(files))
        for file in files:
            progress.update(bar, description=line(file.name, 40))
            _take(client, file, counts, say)
            progress.advance(bar)
    return counts


def _take(client: Client, file: Path, counts: Counts, say: Say) -> None:
    try:
        text = read(file)
    except (Unfit, OSError) as why:
        counts.skipped += isinstance(why, Unfit)
        counts.failed += isinstance(why, OSError)
        return say(f"skipped {file}: {why if isinstance(why, Unfit) else why.strerror}")
    body = {"name": storable(str(file.resolve())), "text": text, "media_type": MEDIA_TYPES[file.suffix.lower()]}
    try:
        answer = client.post("/api/knowledge/documents", body)
    except Refused as problem:
        if problem.status in HOPELESS:
            raise
        counts.failed += 1
        return say(f"failed {file}: {problem}")
    counts.taken += 1
    counts.replaced += bool(answer.get("replaced"))
    counts.chunks += answer["chunks"]
    return None


def read(file: Path) -> str:
    """The file's text. Raises `Unfit` for what is too large, not UTF-8, or empty, and OSError."""
    if not file.is_file():  # a pipe or a device would be read for ever
        raise Unfit("not a file")
    with file.open("rb") as content:
        found = content.read(MAX_BYTES + 1)
    if len(found) > MAX_BYTES:
        raise Unfit("larger than 4 MiB")
    if b"\0" in found:
        raise Unfit("binary")
    try:
        text = found.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unfit("not UTF-8 text") from None
    if not text.strip():
        raise Unfit("empty")
    return text


def _files(paths: Iterable[Path], counts: Counts, say: Say) -> Iterator[Path]:
    """The files to take, each once, in the order of their names. What was named itself may be hidden."""
    seen: set[Path] = set()
    for path in paths:
        for file in _below(path, counts, say):
            if (real := file.resolve()) not in seen:
                seen.add(real)
                yield file


def _below(path: Path, counts: Counts, say: Say) -> Iterator[Path]:
    if path.is_dir():
        yield from _walk(path, counts, say)
    elif not path.exists():
        counts.failed += 1
        say(f"failed {path}: no such file or folder")
    elif path.suffix.lower() not in MEDIA_TYPES:
        counts.skipped += 1
        say(f"skipped {path}: not named {', '.join(MEDIA_TYPES)}")
    else:
        yield path


def _walk(folder: Path, counts: Counts, say: Say) -> Iterator[Path]:
    def unreadable(problem: OSError) -> None:
        counts.failed += 1
        say(f"failed {problem.filename}: {problem.strerror}")

    for at, folders, files in os.walk(folder, onerror=unreadable):
        texts = [name for name in files if Path(name).suffix.lower() in MEDIA_TYPES]
        for name in sorted(name for name in [*folders, *texts] if name.startswith(".")):
            counts.skipped += 1
            say(f"skipped {Path(at) / name}: hidden")
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(at) / name for name in sorted(texts) if not name.startswith("."))
