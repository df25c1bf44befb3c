"""The knowledge store that comes with the product: one SQLite file with a full-text index, through `apsw`.

The async face of `documents` (rows) and `ranking` (search). One connection writes, a few read, each on its own
thread (see `connection`), so that nothing here holds up the event loop, and a search no put.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from knowledge import documents, ranking, trust
from knowledge.backend import (
    BadQuery,
    Counts,
    Document,
    Hit,
    Page,
    SearchTimeout,
    Stored,
    StoreFailed,
    check_limit,
    check_query,
)
from knowledge.connection import Connection, reader, writer
from knowledge.query import clean
from knowledge.ranking import Scope

READERS = 2  # searches that run at once; more wait, within their deadline
QUICK_S, RESTS = 0.5, 19  # a rewriting that takes longer is followed by so many times its length without one

__all__ = ["BadQuery", "Counts", "Document", "Hit", "Page", "SearchTimeout", "Store", "StoreFailed", "Stored"]


class Store:
    """See `knowledge.backend.Backend` for what the methods promise."""

    def __init__(self, connections: list[Connection]) -> None:
        self._connections = connections
        self._writer, *readers = connections
        self._rewritten: tuple[int, int] | None = None  # what had changed when the file was last written anew
        self._rests_until = 0.0
        self._idle: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
        for one in readers:
            self._idle.put_nowait(one)

    @classmethod
    async def open(cls, path: str | Path) -> "Store":
        """Opens the file, makes it if it is not there; its folder must be. Raises StoreFailed.

        Any number of processes may open the same file at the same time. What was opened must be closed.
        """
        path = Path(path)
        connections = [await writer(path)]
        try:
            while len(connections) <= READERS:
                connections.append(await reader(path))
        except BaseException:
            await _close(connections)
            raise
        return cls(connections)

    async def close(self) -> None:
        """Closes once what runs has ended; after it everything raises StoreFailed. Twice is fine."""
        await _close(self._connections)

    async def put(self, document: Document) -> int:
        """See Backend. Cutting, indexing and committing happen on the writer's thread."""
        return await self._writer.run(documents.put, document)

    async def search(
        self,
        query: str,
        owner: str,
        *,
        limit: int = 5,
        session: str | None = None,
        source_type: str | None = None,
        min_trust: int | None = None,
        deadline_s: float = 2.0,
    ) -> list[Hit]:
        """See Backend. At the deadline the statement that runs is stopped; waiting for a reader counts."""
        check_query(query)
        check_limit(limit)
        scope = Scope(clean(owner), _cleaned(session), _cleaned(source_type), min_trust or trust.EXTERNAL)
        try:
            async with asyncio.timeout(deadline_s), self._reader() as idle:
                return await idle.run(ranking.search, query, scope, limit)
        except TimeoutError as fault:
            raise SearchTimeout(f"the search was stopped after {deadline_s:g} s") from fault

    async def documents(
        self,
        owner: str,
        limit: int = 50,
        cursor: str = "",
        *,
        source: str | None = None,
        source_type: str | None = None,
    ) -> Page:
        """See Backend. `limit` is 1 to 200."""
        check_limit(limit)
        before = documents.number_of(cursor) if cursor else 1 << 62
        if before is None:
            raise BadQuery("a cursor is the next_cursor of an earlier page, or empty")
        filters = {"owner": clean(owner), "before": before}
        filters |= {"source": _cleaned(source), "source_type": _cleaned(source_type)}
        async with self._reader() as idle:
            return await idle.run(documents.page, filters, limit)

    async def document(self, owner: str, document_id: str) -> Stored | None:
        """One document with its text, if it is the owner's or shared; None otherwise."""
        async with self._reader() as idle:
            return await idle.run(documents.read, clean(owner), documents.number_of(document_id))

    async def remove(self, owner: str | None, document_id: str) -> bool:
        """See Backend."""
        number = documents.number_of(document_id)
        return await self._writer.run(documents.erase, "owner is ? and id is ?", _cleaned(owner), number) == 1

    async def erase_source(
        self, owner: str | None, source: str, *, source_type: str | None = None, until: int | None = None
    ) -> int:
        """See Backend."""
        condition = "owner is ? and source = ? and source_type = coalesce(?, source_type) and created_at <= coalesce(?, created_at)"
        given = (_cleaned(owner), clean(source), _cleaned(source_type), until)
        return await self._writer.run(documents.erase, condition, *given)

    async def erase_jobs(self, owner: str | None, job_ids: Sequence[str], at: int) -> int:
        """See Backend."""
        return await self._writer.run(documents.erase_jobs, _cleaned(owner), [clean(job_id) for job_id in job_ids], at)

    async def purge(self) -> bool:
        """Takes what was erased, replaced or superseded out of the files; False where it cannot be now: ask again.

        Until then its words stay in older parts of the index, in gaps between the rows of pages, and in the write-ahead
        log, for nobody to find but one who reads the bytes. The index is merged step by step, and puts get in between.
        Then the file is written anew, for which puts wait. That is done only while nobody reads what is older, since the
        log grows by all of it, and, where it takes long, for a twentieth of the time at most.
        """
        if await self._writer.run(documents.changes) == self._rewritten:
            return await self._writer.run(documents.checkpoint)
        if time.monotonic() < self._rests_until:
            return False
        await self._writer.run(documents.begin_merge)
        while await self._writer.run(documents.merge):
            pass
        if not await self._writer.run(documents.checkpoint):
            return False
        began = time.monotonic()
        await self._writer.run(documents.rewrite)
        if (took_s := time.monotonic() - began) > QUICK_S:
            self._rests_until = time.monotonic() + RESTS * took_s
        self._rewritten = await self._writer.run(documents.changes)
        return await self._writer.run(documents.checkpoint)

    async def counts(self) -> Counts:
        """How much there is, of all owners."""
        async with self._reader() as idle:
            return await idle.run(documents.counts)

    @asynccontextmanager
    async def _reader(self) -> AsyncIterator[Connection]:
        idle = await self._idle.get()
        try:
            yield idle
        finally:
            self._idle.put_nowait(idle)


async def _close(connections: list[Connection]) -> None:
    for one in connections:
        await one.close()


def _cleaned(text: str | None) -> str | None:
    return None if text is None else clean(text)
