"""Documents and stores in a named state, for the tests of the knowledge store."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import apsw

from knowledge.backend import Document, Hit
from knowledge.store import Store

OWNER = "local"
ANOTHER = "mallory"
NOON = 1_796_040_000_000_000  # 2026-11-30 12:00 UTC, in microseconds
HOUR = 3_600_000_000


def report(text: str = "A report.", **changes: Any) -> Document:
    """An agent's report for the session `s`; its key follows from all the rest unless it is given."""
    fields: dict[str, Any] = {
        "key": f"report:{crc32(repr((text, changes)).encode())}",
        "owner": OWNER,
        "source": "s",
        "source_type": "background_report",
        "heading": "What was found",
        "text": text,
        "trust": 2,
        "created_at": NOON,
    }
    return Document(**fields | changes)


def attempt(number: int, text: str, job_id: str = "bg-0123456789ab", **changes: Any) -> Document:
    """The report of a job's attempt; later attempts end an hour later."""
    when = NOON + number * HOUR
    return report(text, **{"key": f"report:{job_id}:{number}", "job_id": job_id, "created_at": when} | changes)


def long_text(facts: dict[int, str] | None = None, chars: int = 15_000) -> str:
    """Prose of that length, under Markdown headings, with facts at given positions."""
    parts, size = [], 0
    waiting = sorted((facts or {}).items())
    while size < chars:
        number = len(parts)
        part = (
            f"\n## Section {number}\n\n" if number % 4 == 0 else f"Ordinary sentence number {number} says little. " * 8
        )
        if waiting and size >= waiting[0][0]:
            part = f"\n{waiting.pop(0)[1]}\n"
        parts.append(part)
        size += len(part)
    return "".join(parts)


def path_in(folder: Path) -> Path:
    return folder / "knowledge.db"


@asynccontextmanager
async def library(folder: Path, *documents: Document) -> AsyncIterator[Store]:
    """An open store that holds these documents beside what the folder's store held before."""
    store = await Store.open(path_in(folder))
    try:
        for document in documents:
            await store.put(document)
        yield store
    finally:
        await store.close()


@contextmanager
def tampering(folder: Path) -> Any:
    """A second, plain connection to the store's file, for breaking things and looking behind the face."""
    db = apsw.Connection(str(path_in(folder)))
    try:
        db.set_busy_timeout(5_000)
        db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        yield db
    finally:
        db.close()


def endless(folder: Path) -> None:
    """From now on every search that finds something goes on for ever, unless it is stopped."""
    with tampering(folder) as db:
        db.execute("drop table chunk")
        db.execute(
            "create view chunk as with recursive n (id) as (select 1 union all select id + 1 from n)"
            " select -id as id, '' as heading, '' as text, 0 as start from n"
        )


def titles(hits: Iterable[Hit]) -> list[str]:
    return [hit.heading for hit in hits]
