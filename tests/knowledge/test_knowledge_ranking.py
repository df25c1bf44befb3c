"""Which hits come, in which order, and for whom: all words first, then any; one hit a document; nobody else's."""

from pathlib import Path
from typing import Any

import pytest

from knowledge.backend import BadQuery, Hit
from knowledge.query import SNIPPET_CHARS
from tests.knowledge.library import ANOTHER, NOON, OWNER, attempt, library, long_text, report, titles

FILLER = "There is nothing of interest in this sentence at all. " * 12


@pytest.fixture
def ask(run: Any, tmp_path: Path) -> Any:
    """Puts documents into a fresh store and searches it."""

    def ask(query: str, *documents: Any, owner: str = OWNER, **asked: Any) -> list[Hit]:
        async def story() -> list[Hit]:
            async with library(tmp_path, *documents) as store:
                return await store.search(query, owner, **asked)

        return run(story())

    return ask


# -- the order


def test_all_words_come_before_any_and_more_words_before_fewer(ask: Any) -> None:
    hits = ask(
        "harbour lighthouse keeper",
        report("The keeper. The keeper. The keeper.", heading="one"),
        report("A harbour with a lighthouse.", heading="two"),
        report(f"The keeper of the lighthouse. {FILLER} It is by the harbour. {FILLER}", heading="all"),
    )
    assert titles(hits) == ["all", "two", "one"]
    assert [hit.score for hit in hits] == sorted({hit.score for hit in hits}, reverse=True)


def test_words_far_apart_in_one_document_count_together(ask: Any) -> None:
    """A report of fifteen chunks is one report: its beginning and its end answer together."""
    far = report(long_text({500: "Here is alpha.", 14_000: "Here is omega."}), heading="both")
    decoys = [report(f"Here is {word}. {word} {word}", heading=word) for word in ("alpha", "omega")]
    assert titles(ask("alpha omega", decoys[0], far, decoys[1]))[0] == "both"


def test_a_word_in_the_heading_weighs_more_than_one_in_the_text(ask: Any) -> None:
    text = "Words of the same length about this and that and some more."
    hits = ask(
        "harbour",
        report(f"{text} harbour", heading="Something"),
        report(f"{text} whatever", heading="The harbour"),
    )
    assert titles(hits) == ["The harbour", "Something"]


def test_a_section_is_found_by_the_headings_above_it(ask: Any) -> None:
    text = f"# Lighthouses\n{FILLER}\n## Costs\n{FILLER}{FILLER}\n## Staff\n{FILLER}"
    (hit,) = ask("lighthouses staff", report(text))
    assert hit.snippet.startswith("Staff — ")


def test_rare_words_decide_where_a_common_one_is_everywhere(ask: Any) -> None:
    common = [report(f"common number {number}", heading=f"common {number}") for number in range(60)]
    hits = ask("common uncommonword", *common, report("an uncommonword alone", heading="rare"), limit=1)
    assert titles(hits) == ["rare"]


def test_of_a_long_question_the_rarest_words_are_taken(ask: Any) -> None:
    question = "what did they ever say about the number of the lighthouse keepers"
    decoys = [report(f"{question.replace('lighthouse keepers', 'sheep')} {number}") for number in range(30)]
    assert titles(ask(question, *decoys, report("The lighthouse has keepers.", heading="right"), limit=1)) == ["right"]


def test_a_document_is_one_hit_however_many_of_its_chunks_match(ask: Any) -> None:
    """S73: twice in an answer means that it was indexed twice."""
    hits = ask("ordinary", report(long_text(), heading="long"), report("An ordinary one.", heading="short"))
    assert sorted(titles(hits)) == ["long", "short"]


def test_the_limit_is_kept_and_the_best_are_within_it(ask: Any) -> None:
    documents = [report(f"apple {'pear ' * number}", heading=str(number)) for number in range(12)]
    assert len(ask("apple", *documents)) == 5
    assert len(ask("apple", limit=12)) == 12
    assert len(ask("apple", limit=200)) == 12
    assert titles(ask("apple pear", limit=1)) != ["0"]


@pytest.mark.parametrize("limit", [0, -1, 201])
def test_a_limit_that_cannot_be_is_refused(ask: Any, limit: int) -> None:
    with pytest.raises(BadQuery, match="1 to 200"):
        ask("apple", limit=limit)


# -- the hit


def test_a_hit_says_what_it_is_where_it_is_from_and_how_far_to_trust_it(ask: Any) -> None:
    """F101, S73: source, type, heading, job, tier and date of the document that was put."""
    text = long_text({14_000: "The fact is XYZZY-77."})
    document = attempt(1, text, heading="Look into it (bg-0123456789ab)", source="session:1")
    (hit,) = ask("XYZZY-77", document)
    assert (hit.heading, hit.source, hit.source_type) == (document.heading, "session:1", "background_report")
    assert (hit.job_id, hit.trust, hit.trust_label) == ("bg-0123456789ab", 2, "an agent's work")
    assert hit.created_at == document.created_at
    assert "The fact is XYZZY-77." in hit.snippet
    assert hit.offset <= text.index("XYZZY-77") < hit.offset + 1_400


@pytest.mark.parametrize("before", [0, 3, 8, 12])
def test_a_snippet_is_one_short_line_around_the_words(ask: Any, before: int) -> None:
    sentence = "Neither here\nnor  there.\n"
    (hit,) = ask("needle thread", report(sentence * before + "A needle and its thread. " + sentence * 40))
    assert "A needle and its thread." in hit.snippet
    assert len(hit.snippet) <= SNIPPET_CHARS
    assert hit.snippet.split() == hit.snippet.split(" ")
    assert hit.snippet.endswith(" …")


def test_a_snippet_is_the_window_with_the_most_different_words(ask: Any) -> None:
    text = "needle needle needle. " + FILLER + "The needle and the thread. " + "No more of it. " * 10
    (hit,) = ask("needle thread", report(text))
    assert "The needle and the thread." in hit.snippet


@pytest.mark.parametrize("text", ["x" * 1_300 + " needle", "needle" + " " * 1_300, "京" * 700 + "針" + "都" * 600])
def test_a_snippet_of_text_without_words_around_is_still_one(ask: Any, text: str) -> None:
    (hit,) = ask("needle 針", report(text))
    assert ("needle" in hit.snippet) or ("針" in hit.snippet)
    assert len(hit.snippet) <= SNIPPET_CHARS


# -- for whom


def test_what_is_anothers_does_not_exist(ask: Any) -> None:
    """F106: the owner's documents and shared ones, whatever is asked."""
    documents = [
        report("apple of mine", heading="mine"),
        report("apple of theirs", heading="theirs", owner=ANOTHER),
        report("apple of all", heading="shared", owner=None),
    ]
    assert sorted(titles(ask("apple", *documents))) == ["mine", "shared"]
    assert sorted(titles(ask("apple theirs", owner=ANOTHER))) == ["shared", "theirs"]
    assert titles(ask("apple", owner="nobody")) == ["shared"]
    assert ask("theirs", session="s") == []


def test_anothers_words_do_not_crowd_out_mine(ask: Any) -> None:
    """Words are rare or common among what the asker may see, not among what others have."""
    theirs = [report(f"quince {word}", owner=ANOTHER) for word in ("alpha", "beta", "gamma", "delta", "epsilon")]
    mine = [report(f"report number {number}", heading=f"mine {number}") for number in range(20)]
    assert len(ask("alpha beta gamma delta epsilon report", *theirs, *mine)) == 5


def test_a_search_narrows_by_session_type_and_tier(ask: Any) -> None:
    documents = [
        report("apple", heading="a", key="a", source="s1"),
        report("apple", heading="b", key="b", source="s2", source_type="document", trust=3),
        report("apple", heading="c", key="c", source="s2", source_type="web_page", trust=1),
    ]
    assert sorted(titles(ask("apple", *documents))) == ["a", "b", "c"]
    assert sorted(titles(ask("apple", session="s2"))) == ["b", "c"]
    assert titles(ask("apple", source_type="document")) == ["b"]
    assert sorted(titles(ask("apple", min_trust=2))) == ["a", "b"]
    assert titles(ask("apple", min_trust=3)) == ["b"]
    assert titles(ask("apple", session="s2", min_trust=2, source_type="document")) == ["b"]
    assert ask("apple", session="s1", min_trust=3) == []
    assert ask("apple", min_trust=4) == []


def test_any_of_the_words_narrows_too(ask: Any) -> None:
    """The road for any of the words has the same bounds as that for all."""
    documents = [
        report("apple only", heading="mine", source="s1"),
        report("pear only", heading="elsewhere", source="s2"),
        report("pear too", heading="theirs", owner=ANOTHER, source="s1"),
        report("pear again", heading="low", source="s1", trust=1),
    ]
    assert titles(ask("apple pear", *documents, session="s1", min_trust=2)) == ["mine"]


def test_a_floor_does_not_hide_what_is_asked_for_without_one(ask: Any) -> None:
    """F102: with a floor of 3 a report is not brought in by itself, and can still be recalled."""
    assert ask("apple", report("apple"), min_trust=3) == []
    assert len(ask("apple")) == 1


def test_a_floor_is_of_what_a_report_is_made_of_too(ask: Any) -> None:
    """F102: what is external stays external when a report quotes it; a search without a floor finds it all the same."""
    quotes, own = report("apple", heading="quotes", made_of=1), report("apple", heading="own", made_of=3)
    assert titles(ask("apple", quotes, own, min_trust=2)) == ["own"]
    hits = {hit.heading: hit for hit in ask("apple")}
    assert [(hits[name].trust, hits[name].made_of, hits[name].tier) for name in ("quotes", "own")] == [
        (2, 1, 1),
        (2, 3, 2),
    ]


@pytest.mark.parametrize(
    "owner", ["' or '1'='1", "local' --", "LOCAL", "local ", "%", "*", "", "nul\0", "lone\ud800", "loca\u200bl"]
)
def test_an_owner_is_compared_whole(ask: Any, owner: str) -> None:
    assert ask("apple", report("apple", created_at=NOON), owner=owner) == []
