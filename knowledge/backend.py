"""What a knowledge store is, for those who use one and for a plugin that brings its own: nouns, faults, the protocol.

It holds no store. `knowledge.store.Store` is the one that comes with the product.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from knowledge import trust

MAX_TEXT = 50_000_000  # characters of a document
MAX_QUERY = 10_000  # characters of a query
MAX_LIMIT = 200  # hits, or documents of a page


class BadQuery(ValueError):
    """A query, limit or cursor that cannot be; the message says what is allowed and is fit for the one who asked."""


def check_query(query: str) -> None:
    """Raises BadQuery for one that no store is asked."""
    if not query.strip() or len(query) > MAX_QUERY:
        raise BadQuery(f"a query has 1 to {MAX_QUERY} characters and is not blank")


def check_limit(limit: int) -> None:
    """Raises BadQuery for one that no store is asked for."""
    if not 1 <= limit <= MAX_LIMIT:
        raise BadQuery(f"a limit is 1 to {MAX_LIMIT}")


class SearchTimeout(Exception):
    """The deadline passed; the query was stopped and nothing is known about what it would have found."""


class StoreFailed(Exception):
    """The store cannot do it: broken, full, locked, closed. Never said in the form of an empty answer."""


@dataclass(frozen=True)
class Document:
    """A text to be found again.

    `owner` None is shared with everybody. (`owner`, `key`) names the document: putting it again replaces it. `source`
    is where it belongs, a session for reports. `trust` and `made_of` (the lowest tier that went into it) are tiers of
    `knowledge.trust`; a number that is none counts as external. `created_at` is in microseconds, UTC. Raises
    ValueError for an empty owner or key and a text over MAX_TEXT.
    """

    key: str
    owner: str | None
    source: str
    source_type: str
    heading: str
    text: str
    trust: int
    created_at: int
    job_id: str | None = None
    made_of: int | None = None

    def __post_init__(self) -> None:
        if self.owner == "" or not self.key:
            raise ValueError("owner and key must not be empty; a shared document's owner is None")
        if len(self.text) > MAX_TEXT:
            raise ValueError(f"a document has at most {MAX_TEXT} characters")


@dataclass(frozen=True)
class Hit:
    """A document that was found, with its best passage. `score`: higher is better, comparable within one answer only.

    `id` is the document's, `snippet` one line of plain text, `offset` where in the text the passage begins. `made_of`
    as in `Document`; `trust_label` is of `trust` alone.
    """

    id: str
    heading: str
    snippet: str
    score: float
    source: str
    source_type: str
    trust: int
    trust_label: str
    job_id: str | None
    created_at: int
    offset: int = 0
    made_of: int | None = None

    @property
    def tier(self) -> int:
        """How far it may be relied on: no further than what it is made of."""
        return trust.lowest(self.trust, self.made_of) or trust.EXTERNAL


@dataclass(frozen=True)
class Stored:
    """A document as it is kept, superseded ones too. `text` is None in lists."""

    id: str
    key: str
    owner: str | None
    source: str
    source_type: str
    heading: str
    trust: int
    made_of: int | None
    job_id: str | None
    created_at: int
    chars: int
    chunks: int
    superseded_at: int | None
    superseded_reason: str | None
    text: str | None = None

    @property
    def trust_label(self) -> str:
        return trust.label(self.trust)


@dataclass(frozen=True)
class Page:
    """Documents, newest first, and the cursor for the next page, empty at the end."""

    documents: list[Stored]
    next_cursor: str


@dataclass(frozen=True)
class Counts:
    """What the store holds, of all owners. `chunks` are those that can be found."""

    documents: int
    superseded: int
    chunks: int


class Backend(Protocol):
    """What a plugin's knowledge store must do. All of it raises StoreFailed where the store fails."""

    async def put(self, document: Document) -> int:
        """Takes a document in, replacing the one of the same owner and key, whole or not at all.

        Standing documents of the same owner and job under other keys are superseded in the same step: kept, with time
        and reason, and found no more. Of one job the newest by `created_at` stands, whichever comes first. Returns
        the number of chunks that can be found.
        """
        ...

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
        """The best hits among the owner's documents and shared ones. Raises BadQuery, SearchTimeout, StoreFailed.

        `min_trust` is a floor: below it is what itself, or what it is `made_of`, has a lower tier.
        """
        ...

    async def documents(
        self,
        owner: str,
        limit: int = 50,
        cursor: str = "",
        *,
        source: str | None = None,
        source_type: str | None = None,
    ) -> Page:
        """The owner's documents and shared ones, superseded ones included. Raises BadQuery for a strange cursor."""
        ...

    async def remove(self, owner: str | None, document_id: str) -> bool:
        """Erases one document of this very owner; False if there is none, or it is another's."""
        ...

    async def erase_source(
        self, owner: str | None, source: str, *, source_type: str | None = None, until: int | None = None
    ) -> int:
        """Erases all that this owner has from a source, superseded documents too, or what is of a type, or was created
        up to a time. Returns how many.
        """
        ...

    async def erase_jobs(self, owner: str | None, job_ids: Sequence[str], at: int) -> int:
        """Erases the reports of these jobs, and takes none in any more that was created up to `at`. Returns how many."""
        ...

    async def purge(self) -> bool:
        """Takes what was erased out of the files too; False where somebody who reads is in the way: ask again."""
        ...

    async def counts(self) -> Counts:
        """How much there is. It is asked often, and shows whether the store can be read."""
        ...

    async def close(self) -> None: ...
