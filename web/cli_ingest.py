"""What `outrider ingest` takes: files, which it reads here and hands to the server one by one, and addresses, which a job of
the server's takes in.

Says of everything that somebody may have meant and that is not taken why it was left out.
"""

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from agent.converting import Unreadable
from agent.files import Found, text_in, texts_below
from background.text import clean as storable
from web.cli_views import line
from web.client import Client, Refused

WEB = ("http://", "https://")
SESSION = "ingest"  # the chat whose jobs take pages in
POLL_S = 0.2
# Every further file would be answered in the same way.
HOPELESS = (401, 403)

Say = Callable[[str], None]


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
        made = asyncio.run(text_in(file))
    except (Unreadable, OSError) as why:
        counts.skipped += isinstance(why, Unreadable)
        counts.failed += isinstance(why, OSError)
        return say(f"skipped {file}: {why if isinstance(why, Unreadable) else why.strerror}")
    body = {"name": storable(str(file.resolve())), "text": storable(made.text), "heading": storable(made.title)}
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


def _files(paths: Iterable[Path], counts: Counts, say: Say) -> Iterator[Path]:
    """The files to take, each once, in the order of their names."""
    seen: set[Path] = set()
    for path in paths:
        for found in texts_below(path):
            if found.why:
                _left_out(found, counts, say)
            elif (real := found.path.resolve()) not in seen:
                seen.add(real)
                yield found.path


def _left_out(found: Found, counts: Counts, say: Say) -> None:
    counts.failed += found.failed
    counts.skipped += not found.failed
    say(f"{'failed' if found.failed else 'skipped'} {found.path}: {found.why}")


def ingest_pages(client: Client, addresses: Iterable[str], counts: Counts, err: Console) -> None:
    """Has jobs take in these pages, and waits for them. Raises `Away` and `Refused`."""
    client.post("/api/sessions", {"id": SESSION})
    asked = [{"session": SESSION, "source": address, "key": secrets.token_hex(8)} for address in addresses]
    for job_id in [client.post("/api/knowledge/ingest", each)["id"] for each in asked]:
        job = _end_of(client, job_id)
        taken = re.match(r"1 document taken, (\d+) chunk", job["report"] or "")
        if job["status"] == "completed" and taken:
            counts.taken += 1
            counts.chunks += int(taken[1])
        else:
            counts.failed += 1
            why = (job["error"] or {}).get("message") or job["status"]
            err.print(line(f"failed {job['description']}: {why}"), markup=False, soft_wrap=True)


def _end_of(client: Client, job_id: str) -> dict[str, Any]:
    while True:
        job = client.get(f"/api/background/{job_id}")
        if job["completed_at"]:
            return job
        time.sleep(POLL_S)
