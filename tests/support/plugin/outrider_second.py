"""A second knowledge store, which shows what the protocol needs: documents in memory, found by their words. A plugin.

Written after `knowledge/backend.py` and nothing else. As a plugin it fails in all that it is asked while the folder
TRIAL_FOLDER has `door-broken` and no `door-mended`, and cannot be opened with `shut` in TRIAL.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from knowledge import trust
from knowledge.backend import BadQuery, Counts, Document, Hit, Page, Stored


class Second:
    """See `knowledge.backend.Backend`."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Document, Stored]] = {}  # by id, in order of arrival
        self._erased: dict[tuple[str | None, str], int] = {}  # until when nothing of a job is taken in
        self._next = 1

    def _works(self) -> None:
        """Raises where it does not; a store over a network would find out here."""

    async def put(self, document: Document) -> int:
        self._works()
        if document.job_id and document.created_at <= self._erased.get((document.owner, document.job_id), -1):
            return 0
        for one in self._of(document.owner, lambda stored: stored.key == document.key):
            del self._kept[one]
        stored = self._stored(document)
        siblings = self._of(document.owner, lambda one: bool(one.job_id) and one.job_id == document.job_id)
        if any(self._kept[one][1].created_at > document.created_at for one in siblings):
            stored = replace(stored, superseded_at=document.created_at, superseded_reason="a later attempt", chunks=0)
        else:
            for one in siblings:
                told, old = self._kept[one]
                over = {"superseded_at": document.created_at, "superseded_reason": "a later attempt", "chunks": 0}
                self._kept[one] = (told, replace(old, **over))
        self._kept[stored.id] = (document, stored)
        return stored.chunks

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
        self._works()
        wanted = _words(query)
        hits = []
        for document, stored in self._kept.values():
            if stored.superseded_at is not None or stored.owner not in (owner, None):
                continue
            if session not in (None, stored.source) or source_type not in (None, stored.source_type):
                continue
            score = len(wanted & _words(f"{document.heading} {document.text}"))
            tier = trust.lowest(stored.trust, stored.made_of) or trust.EXTERNAL
            if score and tier >= (min_trust or trust.EXTERNAL):
                hits.append(_hit(document, stored, float(score)))
        return sorted(hits, key=lambda hit: -hit.score)[:limit]

    async def documents(
        self,
        owner: str,
        limit: int = 50,
        cursor: str = "",
        *,
        source: str | None = None,
        source_type: str | None = None,
    ) -> Page:
        self._works()
        if cursor and not cursor.isdigit():
            raise BadQuery("a cursor is the next_cursor of an earlier page, or empty")
        below = int(cursor) if cursor else self._next
        found = [
            stored
            for _, stored in reversed(self._kept.values())
            if stored.owner in (owner, None)
            and int(stored.id) < below
            and source in (None, stored.source)
            and source_type in (None, stored.source_type)
        ]
        return Page(found[:limit], found[limit - 1].id if len(found) > limit else "")

    async def remove(self, owner: str | None, document_id: str) -> bool:
        self._works()
        return bool(self._erase(self._of(owner, lambda stored: stored.id == document_id)))

    async def erase_source(
        self, owner: str | None, source: str, *, source_type: str | None = None, until: int | None = None
    ) -> int:
        self._works()
        return self._erase(
            self._of(
                owner,
                lambda stored: (
                    stored.source == source
                    and source_type in (None, stored.source_type)
                    and (until is None or stored.created_at <= until)
                ),
            )
        )

    async def erase_jobs(self, owner: str | None, job_ids: Sequence[str], at: int) -> int:
        self._works()
        for job_id in job_ids:
            self._erased[owner, job_id] = max(at, self._erased.get((owner, job_id), at))
        return self._erase(self._of(owner, lambda stored: stored.job_id in job_ids and stored.created_at <= at))

    async def purge(self) -> bool:
        self._works()
        return True

    async def counts(self) -> Counts:
        self._works()
        standing = [stored for _, stored in self._kept.values() if stored.superseded_at is None]
        return Counts(len(standing), len(self._kept) - len(standing), sum(stored.chunks for stored in standing))

    async def close(self) -> None:
        self._kept.clear()

    def _of(self, owner: str | None, holds: Any) -> list[str]:
        return [key for key, (_, stored) in self._kept.items() if stored.owner == owner and holds(stored)]

    def _erase(self, ids: list[str]) -> int:
        for one in ids:
            del self._kept[one]
        return len(ids)

    def _stored(self, document: Document) -> Stored:
        told = {name: value for name, value in asdict(document).items() if name not in ("text", "trust", "made_of")}
        made_of = None if document.made_of is None else trust.known(document.made_of)
        tier = trust.known(document.trust)
        stored = Stored(
            id=str(self._next),
            trust=tier,
            made_of=made_of,
            chars=len(document.text),
            chunks=1,
            superseded_at=None,
            superseded_reason=None,
            **told,
        )
        self._next += 1
        return stored


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def _hit(document: Document, stored: Stored, score: float) -> Hit:
    return Hit(
        id=stored.id,
        heading=document.heading,
        snippet=" ".join(document.text.split())[:200],
        score=score,
        source=stored.source,
        source_type=stored.source_type,
        trust=stored.trust,
        trust_label=stored.trust_label,
        job_id=stored.job_id,
        created_at=stored.created_at,
        made_of=stored.made_of,
    )


class Breakable(Second):
    """One that fails while its door is broken."""

    def _works(self) -> None:
        folder = Path(os.environ.get("TRIAL_FOLDER", "."))
        if (folder / "door-broken").exists() and not (folder / "door-mended").exists():
            raise OSError("secret: the store is away")


async def open_second(folder: Path) -> Second:
    if "shut" in os.environ.get("TRIAL", ""):
        raise OSError("secret: nobody answers")
    return Breakable()
