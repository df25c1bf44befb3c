"""What any knowledge store must do, held by ours and by one that was written after the protocol alone (F145)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from knowledge.backend import Backend, BadQuery, Counts, SearchTimeout, StoreFailed
from knowledge.foreign import Foreign
from knowledge.store import Store
from tests.knowledge.library import ANOTHER, HOUR, NOON, OWNER, attempt, report
from tests.support.plugin.outrider_second import Second

Story = Callable[[Backend], Awaitable[None]]


@pytest.fixture(params=["ours", "second"])
def tell(request: pytest.FixtureRequest, run: Callable[..., Any], tmp_path: Path) -> Callable[[Story], None]:
    """Lets a story happen with an empty store of each kind."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Backend]:
        if request.param == "ours":
            store: Backend = await Store.open(tmp_path / "knowledge.db")
        else:
            store = Foreign("second", Second())
        try:
            yield store
        finally:
            await store.close()

    async def told(story: Story) -> None:
        async with opened() as store:
            await story(store)

    return lambda story: run(told(story))


async def found(store: Backend, query: str, owner: str = OWNER, **narrowed: Any) -> list[str]:
    return [hit.snippet for hit in await store.search(query, owner, **narrowed)]


def test_a_document_is_found_by_its_owner_and_where_it_belongs(tell: Callable[[Story], None]) -> None:
    async def story(store: Backend) -> None:
        assert await store.put(report("A zyzzyva is a weevil.")) > 0
        await store.put(report("A shared zyzzyva.", owner=None, source="t", source_type="document", trust=3))
        (mine,) = await store.search("zyzzyva", OWNER, session="s")
        assert (mine.snippet, mine.source, mine.trust, mine.created_at) == ("A zyzzyva is a weevil.", "s", 2, NOON)
        assert len(await found(store, "zyzzyva")) == 2 and len(await found(store, "zyzzyva", limit=1)) == 1
        narrows: list[dict[str, Any]] = [
            {"owner": ANOTHER},
            {"session": "t"},
            {"source_type": "document"},
            {"min_trust": 3},
        ]
        for narrowed in narrows:
            assert await found(store, "zyzzyva", **narrowed) == ["A shared zyzzyva."]
        assert await found(store, "quagga") == []

    tell(story)


def test_what_a_report_is_made_of_counts_for_a_floor(tell: Callable[[Story], None]) -> None:
    async def story(store: Backend) -> None:
        await store.put(report("A zyzzyva, out of a web page.", made_of=1))
        (hit,) = await store.search("zyzzyva", OWNER)
        assert (hit.trust, hit.made_of) == (2, 1) and await found(store, "zyzzyva", min_trust=2) == []

    tell(story)


def test_putting_the_same_key_again_replaces_and_another_owner_s_stays(tell: Callable[[Story], None]) -> None:
    async def story(store: Backend) -> None:
        await store.put(report("The old word: quagga.", key="k"))
        await store.put(report("Another's word: quagga.", key="k", owner=ANOTHER))
        await store.put(report("The new word: okapi.", key="k"))
        assert await found(store, "quagga") == [] and await found(store, "okapi") == ["The new word: okapi."]
        assert await found(store, "quagga", ANOTHER) == ["Another's word: quagga."]
        assert len((await store.documents(OWNER)).documents) == 1

    tell(story)


def test_of_a_job_the_newest_report_stands_whichever_comes_first(tell: Callable[[Story], None]) -> None:
    async def story(store: Backend) -> None:
        await store.put(attempt(2, "zyzzyva, second"))
        await store.put(attempt(1, "zyzzyva, first"))
        assert await found(store, "zyzzyva") == ["zyzzyva, second"]
        await store.put(attempt(3, "zyzzyva, third"))
        assert await found(store, "zyzzyva") == ["zyzzyva, third"]
        standing = [stored.superseded_at is None for stored in (await store.documents(OWNER)).documents]
        assert sorted(standing) == [False, False, True]
        assert (await store.counts()).superseded == 2

    tell(story)


def test_what_is_listed_comes_in_pages_with_the_newest_first(tell: Callable[[Story], None]) -> None:
    async def story(store: Backend) -> None:
        for number in range(5):
            await store.put(report(f"number {number}", created_at=NOON + number * HOUR))
        await store.put(report("another's", owner=ANOTHER))
        first = await store.documents(OWNER, 3)
        rest = await store.documents(OWNER, 3, first.next_cursor)
        assert rest.next_cursor == ""
        assert [one.created_at for one in (*first.documents, *rest.documents)] == [
            NOON + n * HOUR for n in (4, 3, 2, 1, 0)
        ]
        assert (await store.documents(OWNER, source="nowhere")).documents == []
        with pytest.raises(BadQuery):
            await store.documents(OWNER, cursor="no cursor")

    tell(story)


def test_a_document_is_removed_by_this_very_owner_alone(tell: Callable[[Story], None]) -> None:
    async def story(store: Backend) -> None:
        await store.put(report("A zyzzyva."))
        (stored,) = (await store.documents(OWNER)).documents
        assert [await store.remove(owner, stored.id) for owner in (ANOTHER, None, OWNER, OWNER)] == [
            False,
            False,
            True,
            False,
        ]
        assert await found(store, "zyzzyva") == []

    tell(story)


def test_what_a_source_has_is_erased_superseded_ones_too_up_to_a_time(tell: Callable[[Story], None]) -> None:
    async def story(store: Backend) -> None:
        await store.put(attempt(1, "one"))
        await store.put(attempt(2, "two"))
        await store.put(report("later", created_at=NOON + 9 * HOUR))
        await store.put(report("a document", source_type="document"))
        assert await store.erase_source(ANOTHER, "s") == 0
        assert await store.erase_source(OWNER, "s", source_type="background_report", until=NOON + 5 * HOUR) == 2
        assert len((await store.documents(OWNER)).documents) == 2
        assert await store.erase_source(OWNER, "s") == 2
        assert (await store.counts()) == Counts(0, 0, 0)

    tell(story)


def test_of_an_erased_job_nothing_older_is_taken_in_again(tell: Callable[[Story], None]) -> None:
    async def story(store: Backend) -> None:
        await store.put(attempt(1, "zyzzyva, first"))
        assert await store.erase_jobs(OWNER, ["bg-0123456789ab"], NOON + 2 * HOUR) == 1
        assert await store.put(attempt(2, "zyzzyva, late")) == 0
        assert await found(store, "zyzzyva") == []
        await store.put(attempt(2, "zyzzyva, another's", owner=ANOTHER))
        await store.put(attempt(3, "zyzzyva, anew"))
        assert await found(store, "zyzzyva") == ["zyzzyva, anew"]
        assert await store.purge() is True

    tell(story)


def test_a_query_or_limit_that_cannot_be_is_refused(tell: Callable[[Story], None]) -> None:
    async def story(store: Backend) -> None:
        for query, limit in ((" ", 5), ("x" * 10_001, 5), ("x", 0), ("x", 201)):
            with pytest.raises(BadQuery):
                await store.search(query, OWNER, limit=limit)

    tell(story)


class Odd(Second):
    """A store that does what the test says instead."""

    def __init__(self, does: Callable[[], Awaitable[Any]]) -> None:
        super().__init__()
        self.search = self.put = self.counts = self.purge = lambda *_, **__: does()  # type: ignore[method-assign]


async def nothing() -> None:
    return None


async def raises() -> None:
    raise TimeoutError("secret: the other end is away")


@pytest.mark.parametrize("does", [nothing, raises])
def test_s84_whatever_goes_wrong_in_a_plugin_s_store_is_said_and_never_nothing_found(
    run: Callable[..., Any], caplog: pytest.LogCaptureFixture, does: Callable[[], Awaitable[Any]]
) -> None:
    async def story() -> None:
        store = Foreign("odd", Odd(does))
        for call in (store.search("zyzzyva", OWNER), store.put(report()), store.counts(), store.purge()):
            with pytest.raises(StoreFailed) as failed:
                await call
            assert "odd" in str(failed.value) and "secret" not in str(failed.value)

    run(story())


def test_a_search_that_does_not_end_is_stopped(run: Callable[..., Any]) -> None:
    async def story() -> None:
        with pytest.raises(SearchTimeout):
            await Foreign("odd", Odd(asyncio.Event().wait)).search("zyzzyva", OWNER, deadline_s=0.05)

    run(story())
