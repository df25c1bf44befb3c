"""A store that fails says so; a deadline stops the query; several processes share one file; the loop is never held up."""

import asyncio
import inspect
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from knowledge import connection
from knowledge.backend import Backend, SearchTimeout, StoreFailed
from knowledge.chunking import chunks
from knowledge.store import READERS, Store
from tests.knowledge.library import HOUR, NOON, OWNER, endless, library, long_text, path_in, report, tampering

ROOT = Path(__file__).parents[2]


# -- failing is never "nothing found"

BREAKING = {
    "no index": "drop table chunk_index",
    "garbage in the index": "update chunk_index_data set block = randomblob(length(block)) where id > 10",
    "pages lost": "delete from chunk_index_data where id > 10",
    "index emptied": "update chunk_index_data set block = x'' where id = 10",
    "chunks lost": "drop trigger chunk_removed; delete from chunk",
    "chunks and index lost": "delete from chunk",
    "no documents table": "pragma foreign_keys = off; drop table document",
}


@pytest.mark.parametrize("damage", BREAKING.values(), ids=BREAKING.keys())
@pytest.mark.parametrize("query", ["needle", "needle and thread", "absent"])
def test_a_broken_store_raises_and_never_answers_nothing(run: Any, tmp_path: Path, damage: str, query: str) -> None:
    """F106, S69: whether the word was there or not, a damaged index cannot say."""

    async def story() -> None:
        async with library(tmp_path, *(report(f"A needle. {number} {long_text()}") for number in range(3))) as store:
            with tampering(tmp_path) as db:
                db.execute(damage)
            with pytest.raises(StoreFailed):
                await store.search(query, OWNER)

    run(story())


def test_an_empty_store_and_a_word_that_is_nowhere_are_no_failures(run: Any, tmp_path: Path) -> None:
    async def story() -> None:
        async with library(tmp_path) as store:
            assert await store.search("needle", OWNER) == []
            for text in ("", "++", "y" * 2_000, "東京", "\0"):
                await store.put(report(text, heading=text[:900]))
                assert await store.search("needle", OWNER) == []
            assert await store.erase_source(OWNER, "s") == 5
            assert await store.search("needle", OWNER) == []

    run(story())


@pytest.mark.parametrize("content", [b"not a database at all" * 400, b"SQLite format 3\0" + b"\xff" * 8_000])
def test_a_file_that_is_no_database_is_refused_and_left_alone(run: Any, tmp_path: Path, content: bytes) -> None:
    path_in(tmp_path).write_bytes(content)
    with pytest.raises(StoreFailed):
        run(Store.open(path_in(tmp_path)))
    assert path_in(tmp_path).read_bytes() == content


@pytest.mark.parametrize("place", ["", "missing/knowledge.db"])
def test_a_place_where_no_file_can_be_is_refused(run: Any, tmp_path: Path, place: str) -> None:
    with pytest.raises(StoreFailed, match="cannot be opened"):
        run(Store.open(tmp_path / place))


def test_a_file_of_a_newer_version_is_refused_with_a_clear_line(run: Any, tmp_path: Path) -> None:
    async def story() -> None:
        async with library(tmp_path):
            pass
        with tampering(tmp_path) as db:
            db.pragma("user_version", 99)
        with pytest.raises(StoreFailed, match="version 99; this program knows 2"):
            await Store.open(path_in(tmp_path))

    run(story())


def test_a_closed_store_fails_and_closing_twice_does_not(run: Any, tmp_path: Path) -> None:
    async def story() -> None:
        async with library(tmp_path, report("apple")) as store:
            await store.close()
            for call in (
                store.search("apple", OWNER),
                store.put(report("pear")),
                store.documents(OWNER),
                store.document(OWNER, "doc-1"),
                store.remove(OWNER, "doc-1"),
                store.erase_source(OWNER, "s"),
                store.erase_jobs(OWNER, ["bg-1"], NOON + 10 * HOUR),
                store.counts(),
                store.purge(),
            ):
                with pytest.raises(StoreFailed):
                    await call

    run(story())


def test_a_put_that_gets_no_lock_fails_and_loses_nothing(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_MS", 50)

    async def story() -> None:
        async with library(tmp_path, report("apple")) as store:
            with tampering(tmp_path) as db:
                db.execute("begin immediate")
                with pytest.raises(StoreFailed, match="locked"):
                    await store.put(report("pear"))
                assert len(await store.search("apple", OWNER)) == 1
            assert await store.put(report("pear")) == 1

    run(story())


# -- deadlines


def test_a_search_past_its_deadline_is_stopped_and_gives_its_reader_back(run: Any, tmp_path: Path) -> None:
    """The query here would never end; what comes after it on the same connections does."""

    async def story() -> None:
        async with library(tmp_path, report("apple pie")) as store:
            endless(tmp_path)
            for query in ("apple", "apple pie"):
                stuck = [store.search(query, OWNER, deadline_s=0.1) for _ in range(READERS + 2)]
                for outcome in await asyncio.gather(*stuck, return_exceptions=True):
                    assert isinstance(outcome, SearchTimeout)
            everywhere = await asyncio.gather(*(store.documents(OWNER) for _ in range(READERS)))
            assert [len(page.documents) for page in everywhere] == [1] * READERS

    run(story(), timeout=20)


@pytest.mark.parametrize("deadline_s", [0.0, -1.0])
def test_a_deadline_that_is_over_is_a_timeout(run: Any, tmp_path: Path, deadline_s: float) -> None:
    async def story() -> None:
        async with library(tmp_path, report("apple")) as store:
            with pytest.raises(SearchTimeout):
                await store.search("apple", OWNER, deadline_s=deadline_s)
            assert len(await store.search("apple", OWNER)) == 1

    run(story())


def test_a_search_whose_caller_is_gone_is_stopped(run: Any, tmp_path: Path) -> None:
    """Closing the store waits for what runs, so it would wait for ever here."""

    async def story() -> None:
        async with library(tmp_path, report("apple")) as store:
            endless(tmp_path)
            searches = [asyncio.create_task(store.search("apple", OWNER, deadline_s=1_000)) for _ in range(READERS)]
            with pytest.raises(TimeoutError):  # so they have begun, and hold every reader
                await asyncio.wait_for(store.counts(), 0.2)
            for search in searches:
                search.cancel()
            assert all(
                isinstance(it, asyncio.CancelledError) for it in await asyncio.gather(*searches, return_exceptions=True)
            )

    run(story(), timeout=20)


def test_a_put_goes_through_while_every_reader_is_busy(run: Any, tmp_path: Path) -> None:
    async def story() -> None:
        async with library(tmp_path, report("apple")) as store:
            endless(tmp_path)
            searches = [asyncio.create_task(store.search("apple", OWNER, deadline_s=1_000)) for _ in range(READERS)]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(store.counts(), 0.2)
            with pytest.raises(StoreFailed, match="cannot modify chunk"):  # it got as far as writing into the view
                await asyncio.wait_for(store.put(report("pear")), 10)
            assert not any(search.done() for search in searches)
            for search in searches:
                search.cancel()
            await asyncio.gather(*searches, return_exceptions=True)

    run(story(), timeout=30)


# -- the event loop


HOSTILE = {
    "prose": long_text(chars=1_000_000),
    "headings": "# a\n" * 250_000,
    "one word": "x" * 1_000_000,
    "cjk": "".join(chr(0x4E00 + number * 7_919 % 20_000) for number in range(300_000)),
    "emoji": "😀" * 200_000,
    "signs": '"*()^:-' * 140_000,
    "zero width": "\u200b" * 300_000,
    "nul": "\0" * 300_000,
    "combining": "e" + "\u0301" * 300_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_huge_text_is_taken_in_while_the_loop_goes_on(run: Any, tmp_path: Path, text: str) -> None:
    """However it is made, the loop takes its turns meanwhile, and the word at its end is found."""

    async def story() -> None:
        async with library(tmp_path, report("an apple")) as store:
            turns, began = 0, time.monotonic()
            put = asyncio.create_task(store.put(report(text + "\n\nneedle", heading="huge")))
            while not put.done():
                await asyncio.sleep(0.002)
                turns += 1
            assert await put == len(chunks(text + "\n\nneedle"))
            assert turns >= 4 * (time.monotonic() - began)
            (hit,) = await store.search("needle", OWNER, deadline_s=30)
            assert hit.snippet.endswith("needle")
            assert len(await store.search("apple", OWNER)) == 1

    run(story())


def test_a_put_whose_caller_is_gone_is_whole_or_not_there(run: Any, tmp_path: Path) -> None:
    document = report(long_text({100: "A needle."}, chars=300_000))

    async def story() -> None:
        async with library(tmp_path) as store:
            for wait_s in (0, 0.01, 0.03, 0.06):
                put = asyncio.create_task(store.put(document))
                await asyncio.wait([put], timeout=wait_s)
                put.cancel()
                await asyncio.wait([put])
                await store.purge()  # so what the writer was still about is over
                counts = await store.counts()
                assert counts.chunks in (0, len(chunks(document.text)))
                assert len(await store.search("needle", OWNER)) == counts.documents
            assert await store.put(document) == len(chunks(document.text))

    run(story())


def test_many_puts_and_searches_at_once_all_come_true(run: Any, tmp_path: Path) -> None:
    async def story() -> None:
        async with library(tmp_path) as store:

            async def one(number: int) -> None:
                await store.put(report(f"word{number} and a common one", heading=str(number)))
                hits = await store.search(f"word{number}", OWNER, deadline_s=30)
                assert [hit.heading for hit in hits] == [str(number)]

            await asyncio.gather(*(one(number) for number in range(60)))
            assert (await store.counts()).documents == 60

    run(story())


# -- several processes

OPEN_AND_PUT = """
import asyncio, sys, time
from pathlib import Path
from knowledge.store import Document, Store

async def story(path, number, go):
    while not go.exists():
        time.sleep(0.001)
    store = await Store.open(path)
    try:
        for part in range(5):
            await store.put(Document(f"{number}/{part}", "local", "s", "document", "h", f"apple{number} part{part}", 3, 1))
        assert len(await store.search(f"apple{number}", "local", deadline_s=30)) == 5
    finally:
        await store.close()

asyncio.run(story(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
"""


def test_processes_that_open_a_fresh_file_at_once_share_it(run: Any, tmp_path: Path) -> None:
    """One makes the schema, none is told that the file is locked, and each one's documents are there."""
    folder, go = tmp_path / "data", tmp_path / "go"
    folder.mkdir()
    command = [sys.executable, "-c", OPEN_AND_PUT, str(path_in(folder))]
    children = [
        subprocess.Popen([*command, str(number), str(go)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    go.touch()
    errors = [child.communicate(timeout=60)[1] for child in children]
    assert [child.returncode for child in children] == [0] * 4, errors

    async def story() -> None:
        async with library(folder) as store:
            assert (await store.counts()).documents == 20
            assert len(await store.search("part3", OWNER)) == 4

    run(story())


def test_what_another_process_puts_is_found_at_once(run: Any, tmp_path: Path) -> None:
    async def story() -> None:
        async with library(tmp_path, report("apple")) as one, library(tmp_path) as two:
            assert len(await two.search("apple", OWNER)) == 1
            await two.put(report("pear"))
            assert len(await one.search("pear", OWNER)) == 1
            await one.erase_source(OWNER, "s")
            assert await two.search("apple pear", OWNER) == []

    run(story())


KILLED_WHILE_PUTTING = """
import asyncio, sys
from knowledge.store import Document, Store

async def story(path):
    store = await Store.open(path)
    number = 0
    while True:
        text = f"round{number} " + "words of a long report, " * 2_000
        await store.put(Document("k", "local", "s", "document", "h", text, 3, number))
        print(number, flush=True)
        number += 1

asyncio.run(story(sys.argv[1]))
"""


def test_a_process_killed_while_putting_leaves_one_whole_document(run: Any, tmp_path: Path) -> None:
    """F103: whatever was acknowledged is there, all of it, and nothing of a text that was not finished."""
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED_WHILE_PUTTING, str(path_in(tmp_path))],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout
    acknowledged = [int(child.stdout.readline()) for _ in range(5)][-1]
    child.kill()
    rest, _ = child.communicate(timeout=30)
    acknowledged = max([acknowledged, *(int(line) for line in rest.split())])

    async def story() -> None:
        async with library(tmp_path) as store:
            (document,) = (await store.documents(OWNER)).documents
            stored = await store.document(OWNER, document.id)
            assert stored and stored.text and document.created_at in (acknowledged, acknowledged + 1)
            assert stored.text.startswith(f"round{document.created_at} ")
            assert document.chunks == len(chunks(stored.text)) == (await store.counts()).chunks
            assert len(await store.search(f"round{document.created_at}", OWNER)) == 1
            assert await store.search(f"round{document.created_at - 1}", OWNER) == []

    run(story())


def test_a_lock_file_that_is_never_released_is_an_error_and_no_hang(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOCK_WAIT_S", 0.1)
    holding = subprocess.Popen(
        [sys.executable, "-c", "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print(1, flush=True); input()",
         str(path_in(tmp_path)) + ".lock"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holding.stdout
    holding.stdout.readline()
    started = time.monotonic()
    with pytest.raises(StoreFailed, match="locked"):
        run(Store.open(path_in(tmp_path)))
    assert time.monotonic() - started < 10
    holding.communicate("\n", timeout=30)


# -- the protocol


@pytest.mark.parametrize("name", [name for name in vars(Backend) if not name.startswith("_")])
def test_the_store_is_what_the_protocol_asks_of_a_backend(name: str) -> None:
    asked, given = inspect.signature(getattr(Backend, name)), inspect.signature(getattr(Store, name))
    assert list(given.parameters.values()) == list(asked.parameters.values())
    assert inspect.iscoroutinefunction(getattr(Store, name))
