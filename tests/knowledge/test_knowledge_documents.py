"""Putting, replacing, superseding, listing and erasing: what is in the store, and what is left of it."""

import random
from pathlib import Path
from typing import Any

import pytest

import knowledge.store
from knowledge import backend, documents, trust
from knowledge.backend import BadQuery, Document, StoreFailed
from knowledge.chunking import chunks
from knowledge.documents import rewrite
from knowledge.store import Counts
from tests.knowledge.library import (
    ANOTHER,
    HOUR,
    NOON,
    OWNER,
    attempt,
    library,
    long_text,
    path_in,
    report,
    tampering,
    titles,
)

JOB = "bg-0123456789ab"


def sound(folder: Path) -> bool:
    """Whether SQLite and the index find the file in order, chunk for chunk."""
    with tampering(folder) as db:
        db.execute("insert into chunk_index (chunk_index, rank) values ('integrity-check', 1)")
        indexed = db.execute("select count(*) from chunk_index_docsize").get
        assert indexed == db.execute("select count(*) from chunk").get
        assert indexed == db.execute("select coalesce(sum(chunks), 0) from document").get
        return db.execute("pragma integrity_check").get == "ok"


# -- putting


def test_a_document_is_kept_whole_beside_its_chunks(run: Any, tmp_path: Path) -> None:
    text = "\ufeff# Title\r\n\ttabs, trailing  \n\n" + long_text() + "東京 😀 e\u0301 \n\n"

    async def story() -> None:
        async with library(tmp_path) as store:
            assert await store.put(report(text)) == len(chunks(text))
            (hit,) = await store.search("ordinary sentence", OWNER)
            stored = await store.document(OWNER, hit.id)
            assert stored and stored.text == text
            assert (stored.chars, stored.chunks) == (len(text), len(chunks(text)))
            assert await store.counts() == Counts(documents=1, superseded=0, chunks=len(chunks(text)))

    run(story())
    assert sound(tmp_path)


def test_every_part_of_a_long_report_is_found(run: Any, tmp_path: Path) -> None:
    """F101: a fact at character 14 000 of 15 000 as well as one at the start."""
    facts = {position: f"Fact number{position} holds." for position in range(0, 15_000, 1_000)}

    async def story() -> None:
        async with library(tmp_path, report(long_text(facts)), report("nothing")) as store:
            for position in facts:
                hits = await store.search(f"number{position}", OWNER)
                assert len(hits) == 1
                assert facts[position] in hits[0].snippet

    run(story())


def test_an_empty_text_is_found_by_its_heading(run: Any, tmp_path: Path) -> None:
    async def story() -> None:
        async with library(tmp_path) as store:
            assert await store.put(report("", heading="An empty apple")) == 1
            assert titles(await store.search("apple", OWNER)) == ["An empty apple"]

    run(story())


def test_what_is_put_outlives_the_process_that_put_it(run: Any, tmp_path: Path) -> None:
    async def story() -> None:
        async with library(tmp_path, report("an apple", heading="kept")):
            pass
        async with library(tmp_path) as store:
            assert titles(await store.search("apple", OWNER)) == ["kept"]

    run(story())


@pytest.mark.parametrize(("tier", "kept"), [(3, 3), (2, 2), (1, 1), (0, 1), (4, 1), (-1, 1), (99, 1)])
def test_a_tier_that_is_none_is_external(run: Any, tmp_path: Path, tier: int, kept: int) -> None:
    """F102: unknown is 1; so a number out of range never passes a floor."""

    async def story() -> None:
        async with library(tmp_path, report("apple", trust=tier, made_of=tier)) as store:
            (hit,) = await store.search("apple", OWNER)
            stored = await store.document(OWNER, hit.id)
            assert stored and (hit.trust, stored.trust, stored.made_of) == (kept, kept, kept)
            assert hit.trust_label == stored.trust_label == trust.label(kept)

    run(story())


@pytest.mark.parametrize("wrong", [{"owner": ""}, {"key": ""}])
def test_a_document_without_a_name_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        report("apple", **wrong)


def test_a_text_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "MAX_TEXT", 10)
    assert report("0123456789")
    with pytest.raises(ValueError, match="at most 10 characters"):
        report("0123456789x")


# -- putting again


def test_putting_again_is_putting_once(run: Any, tmp_path: Path) -> None:
    """S73: the end of a job and its report run handled twice make one document."""
    document = attempt(1, long_text({5_000: "The fact is XYZZY."}))

    async def story() -> None:
        async with library(tmp_path, document, document) as store:
            assert await store.put(document) == len(chunks(document.text))
            assert len(await store.search("XYZZY", OWNER)) == 1
            assert (await store.counts()).documents == 1
            assert (await store.counts()).chunks == len(chunks(document.text))

    run(story())
    assert sound(tmp_path)


@pytest.mark.parametrize("owner", [OWNER, None])
def test_putting_under_the_same_key_replaces_text_and_particulars(run: Any, tmp_path: Path, owner: str | None) -> None:
    old = report(long_text({900: "An apple."}), key="k", owner=owner, heading="old")
    new = report("A pear.", key="k", owner=owner, heading="new", source="s2", trust=3, created_at=NOON + HOUR)

    async def story() -> None:
        async with library(tmp_path, old) as store:
            (before,) = await store.search("apple", OWNER)
            assert await store.put(new) == 1
            assert await store.search("apple", OWNER) == []
            (hit,) = await store.search("pear", OWNER, session="s2")
            assert (hit.id, hit.heading, hit.trust, hit.created_at) == (before.id, "new", 3, NOON + HOUR)
            assert len((await store.documents(OWNER)).documents) == 1

    run(story())
    assert sound(tmp_path)


def test_the_same_key_of_another_owner_is_another_document(run: Any, tmp_path: Path) -> None:
    documents = [report(f"apple of {owner}", key="k", owner=owner) for owner in (OWNER, ANOTHER, None)]

    async def story() -> None:
        async with library(tmp_path, *documents, *documents) as store:
            assert (await store.counts()).documents == 3
            assert len(await store.search("apple", OWNER)) == 2

    run(story())


@pytest.mark.parametrize("chunk", [0, 6])
@pytest.mark.parametrize("again", [False, True], ids=["first time", "replacing"])
def test_a_fault_between_two_chunks_leaves_all_as_it_was(run: Any, tmp_path: Path, chunk: int, again: bool) -> None:
    """F103: all or nothing; after the fault is gone there are exactly the chunks of one whole text."""
    new = report(long_text({12_000: "A pear."}), key="k")

    async def story() -> None:
        async with library(tmp_path, *[report("An apple.", key="k")][: int(again)]) as store:
            with tampering(tmp_path) as db:
                db.execute(
                    f"create trigger fault before insert on chunk when (new.id & 1048575) = {chunk}"
                    " begin select raise(abort, 'a fault of the test'); end"
                )
                with pytest.raises(StoreFailed, match="a fault of the test"):
                    await store.put(new)
                assert await store.search("pear", OWNER) == []
                assert len(await store.search("apple", OWNER)) == int(again)
                db.execute("drop trigger fault")
            for _ in range(2):
                assert await store.put(new) == len(chunks(new.text))
                assert (await store.counts()).chunks == len(chunks(new.text))
            assert await store.search("apple", OWNER) == []
            assert len(await store.search("pear", OWNER)) == 1

    run(story())
    assert sound(tmp_path)


# -- superseding


def test_a_later_attempt_supersedes_the_earlier_one(run: Any, tmp_path: Path) -> None:
    """F107: kept with time and reason, whole, and found no more."""
    old, new = attempt(1, long_text({3_000: "An apple."})), attempt(2, "A pear.")

    async def story() -> None:
        async with library(tmp_path, old, new) as store:
            assert await store.search("apple", OWNER) == []
            assert len(await store.search("pear", OWNER)) == 1
            first, second = reversed((await store.documents(OWNER)).documents)
            assert (first.superseded_at, first.chunks) == (new.created_at, 0)
            assert first.superseded_reason and new.key in first.superseded_reason
            assert (second.superseded_at, second.superseded_reason) == (None, None)
            kept = await store.document(OWNER, first.id)
            assert kept and kept.text == old.text
            assert await store.counts() == Counts(documents=1, superseded=1, chunks=1)

    run(story())
    assert sound(tmp_path)


@pytest.mark.parametrize("order", [(1, 2, 1), (2, 1), (1, 3, 2, 1, 2), (3, 1, 3)])
def test_what_an_old_attempt_writes_late_brings_nothing_back(run: Any, tmp_path: Path, order: tuple[int, ...]) -> None:
    """S60: whatever comes last, the newest attempt's report is the one that stands."""

    async def story() -> None:
        async with library(tmp_path) as store:
            for number in order:
                await store.put(attempt(number, f"apple from attempt{number}"))
            (hit,) = await store.search("apple", OWNER)
            assert f"attempt{max(order)}" in hit.snippet
            counts = await store.counts()
            assert (counts.documents, counts.superseded, counts.chunks) == (1, len(set(order)) - 1, 1)

    run(story())
    assert sound(tmp_path)


def test_of_attempts_that_ended_at_the_same_moment_the_one_put_last_first_stands(run: Any, tmp_path: Path) -> None:
    """A key that was superseded stays so, whatever its time: an attempt does not become the newest by being repeated."""
    first, second = (attempt(number, f"apple from attempt{number}", created_at=0) for number in (1, 2))

    async def story() -> None:
        async with library(tmp_path, first, second, first) as store:
            (hit,) = await store.search("apple", OWNER)
            assert "attempt2" in hit.snippet

    run(story())


def test_superseding_reaches_no_other_job_owner_or_document(run: Any, tmp_path: Path) -> None:
    bystanders = [
        attempt(1, "apple", job_id="bg-ffffffffffff", heading="another job"),
        attempt(1, "apple", owner=ANOTHER, heading="another's job of the same id"),
        report("apple", heading="no job", job_id=None),
    ]

    async def story() -> None:
        async with library(tmp_path, attempt(1, "pear"), *bystanders, attempt(2, "plum")) as store:
            assert sorted(titles(await store.search("apple", OWNER))) == ["another job", "no job"]
            assert len(await store.search("apple", ANOTHER)) == 1
            assert await store.search("pear", OWNER) == []

    run(story())


def test_a_fault_while_superseding_leaves_the_earlier_one_standing(run: Any, tmp_path: Path) -> None:
    async def story() -> None:
        async with library(tmp_path, attempt(1, "apple")) as store:
            with tampering(tmp_path) as db:
                db.execute("create trigger fault before insert on chunk begin select raise(abort, 'fault'); end")
            with pytest.raises(StoreFailed):
                await store.put(attempt(2, "pear"))
            assert len(await store.search("apple", OWNER)) == 1
            assert (await store.counts()).superseded == 0

    run(story())
    assert sound(tmp_path)


# -- listing


def test_documents_are_listed_newest_first_page_by_page(run: Any, tmp_path: Path) -> None:
    documents = [
        report(f"number {number}", heading=str(number), owner=None if number % 3 else OWNER) for number in range(10)
    ]
    foreign = [report(f"theirs {number}", owner=ANOTHER) for number in range(10)]

    async def story() -> None:
        async with library(tmp_path) as store:
            for mine, theirs in zip(documents, foreign, strict=True):
                await store.put(theirs)
                await store.put(mine)
            seen, cursor = [], ""
            while True:
                page = await store.documents(OWNER, 4, cursor)
                seen += [document.heading for document in page.documents]
                assert all(document.text is None for document in page.documents)
                if not (cursor := page.next_cursor):
                    break
            assert seen == [str(number) for number in reversed(range(10))]

    run(story())


def test_a_list_narrows_by_source_and_type(run: Any, tmp_path: Path) -> None:
    documents = [
        report("a", heading="a", source="s1"),
        report("b", heading="b", source="s2"),
        report("c", heading="c", source="s2", source_type="document"),
    ]

    async def story() -> None:
        async with library(tmp_path, *documents) as store:

            async def headings(**narrowed: str) -> list[str]:
                return [one.heading for one in (await store.documents(OWNER, 50, **narrowed)).documents]

            assert await headings() == ["c", "b", "a"]
            assert await headings(source="s2") == ["c", "b"]
            assert await headings(source="s2", source_type="document") == ["c"]
            assert await headings(source="s3") == []

    run(story())


@pytest.mark.parametrize(
    "cursor", ["x", "doc-", "doc-x", "doc--1", "doc-1;drop table document", "doc-²", "doc-" + "9" * 40]
)
def test_a_cursor_that_is_none_is_refused(run: Any, tmp_path: Path, cursor: str) -> None:
    async def story() -> None:
        async with library(tmp_path) as store:
            with pytest.raises(BadQuery, match="next_cursor"):
                await store.documents(OWNER, 5, cursor)
            with pytest.raises(BadQuery, match="1 to 200"):
                await store.documents(OWNER, 0)

    run(story())


# -- erasing


def test_removing_one_document_removes_no_other(run: Any, tmp_path: Path) -> None:
    """F107: of the same session, and of the same job."""
    documents = [attempt(1, "apple one"), attempt(1, "apple two", job_id="bg-ffffffffffff"), report("apple three")]

    async def story() -> None:
        async with library(tmp_path, *documents) as store:
            (hit,) = await store.search("one", OWNER)
            assert await store.remove(OWNER, hit.id)
            assert not await store.remove(OWNER, hit.id)
            assert await store.document(OWNER, hit.id) is None
            assert len(await store.search("apple", OWNER)) == 2
            assert await store.search("one", OWNER) == []

    run(story())
    assert sound(tmp_path)


def test_nobody_removes_reads_or_erases_what_is_not_theirs(run: Any, tmp_path: Path) -> None:
    """F178: another's document is the same as none, and a shared one is its giver's to take away."""

    async def story() -> None:
        async with library(tmp_path, report("apple"), report("pear", owner=None)) as store:
            (mine,) = await store.search("apple", OWNER)
            (shared,) = await store.search("pear", OWNER)
            for unknown in (mine.id, "doc-999", "doc-x", "", "1"):
                assert not await store.remove(ANOTHER, unknown)
                assert await store.document(ANOTHER, unknown) is None
            assert not await store.remove(OWNER, shared.id)
            assert not await store.remove(None, mine.id)
            assert await store.erase_source(ANOTHER, "s") == 0
            assert await store.erase_source(None, "s2") == 0
            assert (await store.counts()).documents == 2
            assert await store.document(ANOTHER, shared.id) is not None
            assert await store.remove(None, shared.id)

    run(story())


def test_erasing_a_session_takes_all_that_is_its_own_with_superseded_reports(run: Any, tmp_path: Path) -> None:
    """F159: and nothing of another session or owner."""
    documents = [attempt(1, "apple one"), attempt(2, "apple two"), report("apple three")]
    others = [report("apple", source="s2"), report("apple", owner=ANOTHER)]

    async def story() -> None:
        async with library(tmp_path, *documents, *others) as store:
            assert await store.erase_source(OWNER, "s") == 3
            assert await store.erase_source(OWNER, "s") == 0
            assert await store.counts() == Counts(documents=2, superseded=0, chunks=2)
            assert [one.source for one in (await store.documents(OWNER)).documents] == ["s2"]

    run(story())
    assert sound(tmp_path)


def test_erasing_a_job_takes_its_reports_of_every_attempt(run: Any, tmp_path: Path) -> None:
    """F165."""
    other = attempt(1, "apple", job_id="bg-ffffffffffff")

    async def story() -> None:
        async with library(tmp_path, attempt(1, "apple"), attempt(2, "apple"), other) as store:
            assert await store.erase_jobs(OWNER, [JOB], NOON + 10 * HOUR) == 2
            assert [one.job_id for one in (await store.documents(OWNER)).documents] == ["bg-ffffffffffff"]

    run(story())


def test_an_id_is_never_given_twice(run: Any, tmp_path: Path) -> None:
    async def story() -> None:
        async with library(tmp_path, report("apple")) as store:
            (first,) = await store.search("apple", OWNER)
            await store.remove(OWNER, first.id)
            await store.put(report("pear"))
            (second,) = await store.search("pear", OWNER)
            assert second.id != first.id

    run(story())


def bytes_with(folder: Path, word: bytes) -> int:
    return sum(file.read_bytes().lower().count(word) for file in folder.iterdir())


def test_after_a_purge_no_byte_of_what_was_erased_is_left(run: Any, tmp_path: Path) -> None:
    """Replaced, superseded and removed texts too: in rows, index, log. What was not erased is still found."""
    bystanders = [report(f"Bystander {number}. " + long_text(), heading=f"stays {number}") for number in range(15)]
    doomed = [
        report("qqcanaryone " + long_text({9_000: "qqcanarytwo"}), key="k"),
        report("qqcanarythree, an apple", key="k"),
        attempt(1, "qqcanaryfour " + long_text()),
        attempt(2, "qqcanaryfive"),
    ]

    async def story() -> None:
        async with library(tmp_path, *bystanders[:8], *doomed, *bystanders[8:]) as store:
            assert bytes_with(tmp_path, b"qqcanary") > 0
            assert await store.remove(OWNER, (await store.search("qqcanarythree", OWNER))[0].id)
            assert await store.erase_jobs(OWNER, [JOB], NOON + 10 * HOUR) == 2
            assert bytes_with(tmp_path, b"qqcanary") > 0
            assert await store.purge()
            assert bytes_with(tmp_path, b"canary") == 0
            assert len(await store.search("bystander", OWNER, limit=20)) == 15
            assert await store.purge()

    run(story())
    assert sound(tmp_path)


def test_a_purge_leaves_no_copy_in_the_gaps_of_pages(run: Any, tmp_path: Path) -> None:
    """Rows of many lengths, put in between each other in any order, are moved from page to page by SQLite; of each erased
    one no copy is left behind, and its neighbours are whole.
    """
    order = random.Random(5)
    names = [f"canary{order.getrandbits(40):010x}zz" for _ in range(600)]
    lengths = [order.choice((1, 5, 12, 30, 60, 120)) for _ in names]
    texts = [
        " ".join([name, *(f"{order.getrandbits(32):x}" for _ in range(n))])
        for name, n in zip(names, lengths, strict=True)
    ]
    reports = [
        report(text, key=f"{name}-k", source=f"{name}-s", heading=f"of {name}", job_id=None)
        for name, text in zip(names, texts, strict=True)
    ]

    async def story() -> None:
        async with library(tmp_path, *order.sample(reports, len(reports))) as store:
            for name in names[::2]:
                assert await store.erase_source(OWNER, f"{name}-s") == 1
            assert await store.purge()
            files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
            assert [name for name in names[::2] if name.encode() in files] == []
            assert [name for name in names[1::2] if name.encode() not in files] == []
            assert len(await store.search(names[1], OWNER)) == 1

    run(story())
    assert sound(tmp_path)


def test_the_file_is_written_anew_only_where_something_has_changed_and_not_all_the_time(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def counted(db: Any) -> None:
        rewrite(db)
        done.append("anew")

    monkeypatch.setattr(documents, "rewrite", counted)

    async def story() -> None:
        async with library(tmp_path, report("apple"), report("pear")) as store:
            assert await store.purge() and await store.purge()
            assert done == ["anew"]
            monkeypatch.setattr(knowledge.store, "QUICK_S", 0.0)  # as if it had taken long
            monkeypatch.setattr(knowledge.store, "RESTS", 1e6)
            assert await store.erase_source(OWNER, "s") > 0
            assert await store.purge() and await store.purge()
            assert done == ["anew"] * 2
            await store.put(report("plum"))
            assert not await store.purge() and done == ["anew"] * 2
            assert len(await store.search("pear", OWNER)) == 0

    run(story())


def test_a_purge_says_when_a_reader_is_in_its_way(run: Any, tmp_path: Path) -> None:
    async def story() -> None:
        async with library(tmp_path, report("qqcanary")) as store:
            with tampering(tmp_path) as reading:
                rows = reading.execute("begin; select * from body")
                assert rows.fetchone()
                await store.erase_source(OWNER, "s")
                assert not await store.purge()
            assert await store.purge()
            assert bytes_with(tmp_path, b"qqcanary") == 0

    run(story())


def test_nobody_else_on_the_machine_reads_the_files(run: Any, tmp_path: Path) -> None:
    async def story() -> None:
        async with library(tmp_path, report("apple")):
            names = {file.name for file in tmp_path.iterdir()}
            assert {path_in(tmp_path).name, path_in(tmp_path).name + "-wal"} <= names
            assert [oct(file.stat().st_mode & 0o077) for file in tmp_path.iterdir()] == ["0o0"] * len(names)

    run(story())


def test_the_tiers_are_as_documented_and_what_is_none_is_external() -> None:
    """F102, and the label is words."""
    assert (trust.OPERATOR, trust.AGENT, trust.EXTERNAL) == (3, 2, 1)
    assert [trust.known(tier) for tier in (3, 2, 1, 0, 7, -1)] == [3, 2, 1, 1, 1, 1]
    assert len({trust.label(tier) for tier in (1, 2, 3)}) == 3
    assert trust.label(0) == trust.label(7) == trust.label(1)


def test_a_document_cannot_be_changed_under_the_store() -> None:
    with pytest.raises(AttributeError):
        report("apple").text = "pear"  # type: ignore[misc]
    assert Document.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_an_erased_report_that_comes_late_is_not_taken_in_and_a_later_attempt_is(run: Any, tmp_path: Path) -> None:
    """Its indexing was under way when it was erased; what a retry reports afterwards is another matter."""

    async def story() -> None:
        async with library(tmp_path) as store:
            assert await store.erase_jobs(OWNER, [JOB], NOON + HOUR) == 0
            assert await store.put(attempt(1, "walrus")) == 0
            assert await store.search("walrus", OWNER) == []
            assert await store.put(attempt(2, "walrus again")) == 1
            assert len(await store.search("walrus", OWNER)) == 1

    run(story())


def test_a_store_of_the_first_version_learns_to_remember_what_was_erased(run: Any, tmp_path: Path) -> None:
    async def story() -> None:
        async with library(tmp_path) as store:
            await store.put(report("seal"))
        with tampering(tmp_path) as db:
            db.execute("drop table erased; pragma user_version = 1")
        async with library(tmp_path) as store:
            assert len(await store.search("seal", OWNER)) == 1
            assert await store.erase_jobs(OWNER, [JOB], NOON) == 0

    run(story())
