"""`knowledge_ingest`: work that takes files, folders and pages of the web into the knowledge store, for one owner.

A page is what its author says (trust 1); of files only those below the operator's folders are read (trust 3). What was taken
in is kept step by step; taking the same again replaces it. It decides nothing about who may ask.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.converting import Unreadable, text_of
from agent.fetching import Fetcher, Unfetched
from agent.files import MAX_CHARS, Found, text_in, texts_below
from agent.handlers import Handler, Work, WorkFailed
from agent.works import INGEST, Kind, spec_of_work
from background.errors import Fault
from background.jobs import Spec
from background.text import clean, clip
from knowledge import trust
from knowledge.backend import Backend, Document
from knowledge.chunking import title

SOURCE_TYPE = "document"
KEY = "document:"
MAX_SOURCE = 2048
HEADING = 300
MOST_FILES = 5000
WEB = ("http://", "https://")
INCOGNITO = "Nothing of an incognito session is remembered, so nothing is taken in from it."
NO_FILES = "Files are taken in from the folders of OUTRIDER_INGEST_FOLDERS alone, and this is not below one."
NO_PAGES = "Models may not have pages of the web read here (OUTRIDER_FETCH)."


@dataclass(frozen=True)
class Sources:
    """What may be taken in: pages of the web, and what lies below folders."""

    pages: bool = True
    folders: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return self.pages or bool(self.folders)

    def spec(self, source: Any, *, incognito: bool) -> Spec:
        """The job that takes it in. Raises a fault for what is not, and then nothing is stored."""
        if not isinstance(source, str) or not source.strip() or len(source) > MAX_SOURCE:
            told = f"source is an http or https address, or the path of a file or folder, of at most {MAX_SOURCE} characters."
            raise Fault("invalid", told, field="source")
        if incognito:
            raise Fault("conflict", INCOGNITO)
        source = clean(source.strip())
        self.require(source)
        return spec_of_work({INGEST}, INGEST, {"source": source}, clip(f"Taking in {source}", 120))

    def require(self, source: str) -> None:
        """Raises a fault for what may not be taken in."""
        if source.startswith(WEB):
            if not self.pages:
                raise Fault("invalid", NO_PAGES, field="source")
        elif not self.has(Path(source)):
            raise Fault("invalid", NO_FILES, field="source")

    def has(self, path: Path) -> bool:
        """Whether a path, wherever its links lead, lies below one of the folders."""
        return path.is_absolute() and any(path.resolve().is_relative_to(folder.resolve()) for folder in self.folders)


def document(owner: str | None, name: str, text: str, tier: int, now: int, heading: str = "") -> Document:
    """A document of this name: putting another of the same owner and name replaces it."""
    return Document(
        key=f"{KEY}{name}",
        owner=owner,
        source=name,
        source_type=SOURCE_TYPE,
        heading=clip(heading, HEADING) or title(text) or name,
        text=text,
        trust=tier,
        created_at=now,
    )


@dataclass(frozen=True)
class Ingest:
    """The kind of work. `sources` are what may be taken in at all, whoever asks."""

    knowledge: Backend
    fetcher: Fetcher
    sources: Sources
    now: Callable[[], int]

    @property
    def kind(self) -> Kind:
        """It may run again: what is taken in twice is there once."""
        return Kind(Handler(INGEST, self.run, stoppable=True), idempotent=True)

    async def run(self, work: Work) -> str:
        """The handler: takes in what `source` names, and says what became of it. Raises `WorkFailed`."""
        source = (work.data or {}).get("source")
        if not isinstance(source, str):
            raise WorkFailed("source must be an address or a path.")
        if work.incognito:
            raise WorkFailed(INCOGNITO)
        try:
            self.sources.require(source)
        except Fault as fault:
            raise WorkFailed(fault.message) from None
        return await (self._page(work.owner, source) if source.startswith(WEB) else self._files(work, Path(source)))

    async def _page(self, owner: str, url: str) -> str:
        try:
            found = await self.fetcher.fetch(url)
            made = await text_of(found.media_type, found.body, found.charset)
        except (Unfetched, Unreadable) as why:
            raise WorkFailed(f"The page was not taken in: {why}.") from None
        name, text = url.partition("#")[0], clean(made.text)[:MAX_CHARS]
        chunks = await self.knowledge.put(document(owner, name, text, trust.EXTERNAL, self.now(), clean(made.title)))
        return f"1 document taken, {_count(chunks, 'chunk')}: {name}"

    async def _files(self, work: Work, path: Path) -> str:
        for found in self._below(path):
            if str(found.path) not in work.kept:
                await work.keep(str(found.path), await self._taken(work.owner, found))
        steps = work.kept
        lines = [f"- {name}: {told}" for name, told in steps.items()]
        taken = sum(told.startswith("taken") for told in steps.values())
        if not taken:
            raise WorkFailed("\n".join(["Nothing was taken in.", *lines]))
        return "\n".join([f"{_count(taken, 'document')} taken, {len(steps) - taken} left out.", "", *lines])

    def _below(self, path: Path) -> Iterator[Found]:
        for number, found in enumerate(texts_below(path)):
            if number >= MOST_FILES:
                raise WorkFailed(f"There are more than {MOST_FILES} files; name a folder further down.")
            outside = found.why is None and not self.sources.has(found.path)
            yield Found(found.path, "it leads out of the folders that may be read") if outside else found

    async def _taken(self, owner: str, found: Found) -> str:
        if found.why:
            return f"left out, {found.why}"
        try:
            made = await text_in(found.path)
        except (Unreadable, OSError) as why:
            return f"left out, {why if isinstance(why, Unreadable) else why.strerror}"
        name = clean(str(found.path.resolve()))
        heading = clean(made.title)
        chunks = await self.knowledge.put(document(owner, name, clean(made.text), trust.OPERATOR, self.now(), heading))
        return f"taken, {_count(chunks, 'chunk')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
