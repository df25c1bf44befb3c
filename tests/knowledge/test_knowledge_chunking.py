"""Where texts are cut: nothing lost, headings respected, no crumbs, and hostile texts no slower than others."""

import string
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge.chunking import LEAST, OVERLAP, TARGET, Chunk, chunks
from tests.knowledge.library import long_text

MARKDOWN = st.lists(
    st.sampled_from(
        [
            "# A\n",
            "## B\n",
            "### C #\n",
            "Title\n===\n",
            "```\n",
            "~~~\n",
            "\n",
            "word ",
            "Sentence. ",
            "東京",
            "x" * 700,
        ]
    )
    | st.text(string.printable + "éß😀\u200b", max_size=40),
    max_size=200,
).map("".join)


def texts(text: str) -> list[str]:
    return [text[one.start : one.end] for one in chunks(text)]


@given(MARKDOWN)
@settings(max_examples=300, deadline=None)
def test_together_the_chunks_hold_the_whole_text_in_order(text: str) -> None:
    found = chunks(text)
    assert found[0].start == 0
    assert found[-1].end == len(text)
    for one, two in pairwise(found):
        assert one.start < two.start <= one.end < two.end
        assert one.end - two.start <= OVERLAP


@given(MARKDOWN)
@settings(max_examples=300, deadline=None)
def test_no_chunk_is_large_and_only_a_text_that_is_small_itself_has_a_small_one(text: str) -> None:
    sizes = [len(one) for one in chunks(text)]
    assert max(sizes) <= TARGET + LEAST
    assert min(sizes) >= min(LEAST, len(text))


def test_a_report_of_15000_characters_becomes_chunks_of_about_1200() -> None:
    sizes = [len(one) for one in chunks(long_text())]
    assert 11 <= len(sizes) <= 20
    assert TARGET * 0.6 < sum(sizes) / len(sizes) <= TARGET + LEAST


def test_the_sizes_are_as_promised() -> None:
    """F101: about 1 200 characters, an overlap of about 150, and what is under 200 joins its neighbour."""
    assert (TARGET, OVERLAP, LEAST) == (1_200, 150, 200)


def test_neighbours_overlap_by_about_150_characters_that_begin_with_a_word() -> None:
    text = "Every word counts here. " * 400
    found = chunks(text)
    for one, two in pairwise(found):
        assert 0.8 * OVERLAP <= one.end - two.start <= OVERLAP
        assert text[two.start - 1] == " "


def test_a_chunk_begins_at_each_heading_whose_section_is_long_enough() -> None:
    text = "".join(f"## Part {number}\n\n{'Some words on it. ' * 30}\n" for number in range(5))
    assert [one.split("\n")[0] for one in texts(text)] == [f"## Part {number}" for number in range(5)]


def test_chunks_know_the_headings_they_stand_under() -> None:
    body = "Words and more words. " * 20
    text = f"# Book\n{body}\n## One\n{body}\n### Deep\n{body}\n## Two ##\n{body}"
    assert [one.headings for one in chunks(text)] == ["Book", "Book › One", "Book › One › Deep", "Book › Two"]


def test_underlined_headings_count_too() -> None:
    body = "Words and more words. " * 20
    text = f"Book\n====\n{body}\n\nOne\n---\n{body}"
    assert [one.headings for one in chunks(text)] == ["Book", "Book › One"]


def test_what_looks_like_a_heading_in_fenced_code_is_code() -> None:
    code = "````sh\n# not a heading\n```\n# nor this\n````\n"
    body = "Words and more words. " * 20
    text = f"# Real\n{body}\n{code}{body}\n# Next\n{body}"
    assert [one.headings for one in chunks(text)] == ["Real", "Next"]


@pytest.mark.parametrize("line", ["#hashtag", "    # code", "####### seven", "#", "- - -", "---"])
def test_what_is_no_heading_in_markdown_is_none_here(line: str) -> None:
    body = "Words and more words. " * 20
    assert chunks(f"{body}\n\n{line}\n\n{body}") == [Chunk(0, len(f"{body}\n\n{line}\n\n{body}"), "")]


def test_a_short_section_joins_the_next_one_and_a_short_last_one_the_one_before() -> None:
    body = "Words and more words. " * 20
    text = f"# Title\n\n## Findings\n{body}\n## Sources\nNone."
    assert texts(text) == [text]
    assert chunks(text)[0].headings == "Title › Findings"


def test_a_cut_prefers_a_paragraph_then_a_line_then_a_sentence_then_a_word() -> None:
    def first_of(sign: str) -> str:
        return texts(("w" * 40 + " ") * 24 + "end" + sign + ("v" * 40 + " ") * 40)[0]

    for sign in ("\n\n", "\n", ". ", "。"):
        assert first_of(sign).endswith("end" + sign), repr(sign)
    assert first_of("").endswith(" ")


def test_of_breaks_of_a_kind_the_last_one_is_taken() -> None:
    text = "w" * 900 + ". " + "w" * 100 + "! " + "w" * 900
    assert texts(text)[0].endswith("! ")


def test_text_without_any_break_is_cut_where_it_must_be() -> None:
    found = chunks("x" * 5_000)
    assert {len(one) for one in found[:-1]} == {TARGET}
    assert [one.end - two.start for one, two in pairwise(found)] == [OVERLAP] * (len(found) - 1)


@pytest.mark.parametrize("text", ["", " ", "\n", "word"])
def test_the_smallest_texts_are_one_chunk(text: str) -> None:
    assert chunks(text) == [Chunk(0, len(text), "")]


@pytest.mark.parametrize(
    "unit",
    [
        "# a\n",
        "=\n",
        "a\n-\n",
        "#",
        "# ",
        "`",
        "```\n",
        " ",
        "\n",
        "=",
        "- ",
        "-",
        "a" * 9_999 + "\n---\n",
        "💥",
        "\r\n",
    ],
)
def test_a_megabyte_made_to_be_slow_is_cut_all_the_same(unit: str) -> None:
    """Every pattern is linear: what is quadratic in one line would take hours here."""
    text = (unit * (1_000_000 // len(unit) + 1))[:1_000_000]
    found = chunks(text)
    assert found[-1].end == len(text)
    assert len(found) <= len(text) // LEAST


def test_an_endless_heading_does_not_make_an_endless_path() -> None:
    (first, *_) = chunks("# " + "h" * 5_000 + "\n" + "word " * 100)
    assert len(first.headings) <= 200
