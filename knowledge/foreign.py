"""A knowledge store that a plugin has brought, held to the protocol: what it cannot do is `StoreFailed`, never "nothing found".

It passes on what the protocol names and nothing else; what else a store raises goes to the log, and an id to the caller.
It keeps nothing itself.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from knowledge.backend import (
    Backend,
    BadQuery,
    Counts,
    Document,
    Hit,
    Page,
    SearchTimeout,
    StoreFailed,
    check_limit,
    check_query,
)

T = TypeVar("T")
log = logging.getLogger(__name__)

Open = Callable[[Path], Awaitable[Backend]]


class Foreign:
    """See `knowledge.backend.Backend` for what the methods promise. `problems` says why there is no store behind it."""

    def __init__(self, name: str, backend: Backend | None, problems: Sequence[str] = ()) -> None:
        self.problems = tuple(problems)
        self._name = name
        self._backend = backend

    @classmethod
    async def open(cls, name: str, opens: Open | None, folder: Path) -> "Foreign":
        """Opens it. One that is not there, or cannot be opened, is one that fails until the next start."""
        if opens is None:
            return cls(
                name, None, [f"The knowledge backend {name} is not there; nothing is indexed and nothing found."]
            )
        try:
            return cls(name, await opens(folder))
        except Exception:
            error_id = secrets.token_hex(4)
            log.exception("the knowledge backend %s cannot be opened, error %s", name, error_id)
            return cls(name, None, [f"The knowledge backend {name} cannot be opened (error {error_id})."])

    async def put(self, document: Document) -> int:
        """See Backend."""
        return await self._asked(int, lambda backend: backend.put(document))

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
        """See Backend. The query is looked at here, and the deadline holds whatever the store does."""
        check_query(query)
        check_limit(limit)
        narrowed: dict[str, Any] = {"session": session, "source_type": source_type, "min_trust": min_trust}
        deadline = asyncio.timeout(deadline_s)
        try:
            async with deadline:
                asked = {"limit": limit, "deadline_s": deadline_s, **narrowed}
                found = await self._asked(list, lambda backend: backend.search(query, owner, **asked))
        except TimeoutError as fault:
            raise SearchTimeout(f"the search was stopped after {deadline_s:g} s") from fault
        return found[:limit]

    async def documents(
        self,
        owner: str,
        limit: int = 50,
        cursor: str = "",
        *,
        source: str | None = None,
        source_type: str | None = None,
    ) -> Page:
        """See Backend."""
        check_limit(limit)
        narrowed = {"source": source, "source_type": source_type}
        return await self._asked(Page, lambda backend: backend.documents(owner, limit, cursor, **narrowed))

    async def remove(self, owner: str | None, document_id: str) -> bool:
        """See Backend."""
        return await self._asked(bool, lambda backend: backend.remove(owner, document_id))

    async def erase_source(
        self, owner: str | None, source: str, *, source_type: str | None = None, until: int | None = None
    ) -> int:
        """See Backend."""
        narrowed: dict[str, Any] = {"source_type": source_type, "until": until}
        return await self._asked(int, lambda backend: backend.erase_source(owner, source, **narrowed))

    async def erase_jobs(self, owner: str | None, job_ids: Sequence[str], at: int) -> int:
        """See Backend."""
        return await self._asked(int, lambda backend: backend.erase_jobs(owner, job_ids, at))

    async def purge(self) -> bool:
        """See Backend."""
        return await self._asked(bool, lambda backend: backend.purge())

    async def counts(self) -> Counts:
        """See Backend."""
        return await self._asked(Counts, lambda backend: backend.counts())

    async def close(self) -> None:
        """It holds up no end: a store that cannot be closed is in the log."""
        try:
            if self._backend:
                await self._backend.close()
        except Exception:
            log.exception("the knowledge backend %s cannot be closed", self._name)

    async def _asked(self, kind: type[T], ask: Callable[[Backend], Awaitable[T]]) -> T:
        """What the store answers, if it is of that kind. Raises `StoreFailed`, and what the protocol names."""
        if self._backend is None:
            raise StoreFailed(self.problems[0])
        try:
            answer = await ask(self._backend)
        except (BadQuery, SearchTimeout, StoreFailed):
            raise
        except Exception as error:
            error_id = secrets.token_hex(4)
            log.exception("the knowledge backend %s failed, error %s", self._name, error_id)
            raise StoreFailed(f"the knowledge backend {self._name} failed (error {error_id})") from error
        if not isinstance(answer, kind):
            raise StoreFailed(
                f"the knowledge backend {self._name} answered with {type(answer).__name__}, not {kind.__name__}"
            )
        return answer
