"""People's words: whatever is typed is a search and never an error, and what is in a text finds it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from knowledge.backend import BadQuery, Hit
from tests.knowledge.library import HOUR, NOON, OWNER, library, report, titles

PLANTED = """# Notes on the run

The multi-agent setup POL-358 was fixed with foo-bar "baz by @nasa; they don't support 20.04 yet.

status: done. Written in C++ and 50% tested (100% later), see grammar::fa in Downloads/transcripts.
We retry x* and ^x and col:x if {a b}:x; a,b is a pair. Why? NEAR( is NOT x of AND nor *; a AND ( is odd.
The journal_mode in config.toml of sqlite.org is "wal", says e-mail bob@example.com from 192.168.0.17.

Launch🎉 was 😀 and 👍🏽, family 👨‍👩‍👧, flag 🇩🇪, hot 20°C, heart ❤️, melting 🫠.
"""
DECOYS = [
    "C is a language. 50 of 100 were tested in it, and 20 by 04. The bar was at foo, baz is elsewhere.",
    "An agent is not multi anything. POL stands for Poland and 358 is a number. The status is unknown, all is done.",
    "The support for NASA's grammar of fa was near. Don is a name, and t is a letter. A pair of b and a.",
    "Mode of a journal; a file named config and another called toml. Downloads are slow, transcripts are long.",
    "20 degrees C. Smile. A mail to bob, for example, from com. x x x and near, not and or.",
]
ODD = [
    'foo-bar "baz', "multi-agent", "POL-358", "pol 358", "@nasa", "nasa", "don't", "20.04", "status: done", "C++", "c++",
    "50%", "100%", "grammar::fa", "Downloads/transcripts", "a,b", "Why?", "why", "-foo", "foo", "bar", "baz", "{a b}:x",
    "col:x", "^x", "x*", "retry OR", "a AND (", "NOT x", "NEAR(", "AND", "journal_mode", "journal", "mode",
    "config.toml", "toml", "sqlite.org", "e-mail", "bob@example.com", "192.168.0.17", '"wal"', "20°C", "°", "x* and ^x",
    "😀", "🎉", "launch", "Launch🎉", "👍", "👍🏽", "👨‍👩‍👧", "👧", "🇩🇪", "❤️", "❤", "🫠", "fixed RETRYING tests",
    "what did multi-agent POL-358 say about grammar::fa", "zzzunknown POL-358", "retry\0x", "retry\ud800",
]  # fmt: skip


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose store holds the planted report among decoys that have the same words without the signs."""
    folder = tmp_path_factory.mktemp("planted")
    decoys = [report(text, heading=f"decoy {number}") for number, text in enumerate(DECOYS)]

    async def plant() -> None:
        async with library(folder, *decoys[:3], report(PLANTED, heading="planted"), *decoys[3:]):
            pass

    asyncio.run(plant())
    return folder


def ask(folder: Path, query: str, *documents: Any, **asked: Any) -> list[Hit]:
    """What a store that holds these documents too answers."""

    async def story() -> list[Hit]:
        async with library(folder, *documents) as store:
            return await store.search(query, OWNER, **asked)

    return asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.parametrize("query", ODD)
def test_words_as_people_type_them_find_the_planted_report_in_the_top_3(planted: Path, query: str) -> None:
    """S69, F106: signs, operators and emoji are words or nothing, never syntax."""
    assert "planted" in titles(ask(planted, query, limit=3))


@pytest.mark.parametrize(
    "query", ["POL-358", "C++", "50%", "status: done", "a AND (", "20.04", "don't", "journal_mode", "a,b"]
)
def test_what_stands_there_sign_for_sign_goes_before_the_mere_words(planted: Path, query: str) -> None:
    assert titles(ask(planted, query))[0] == "planted"


@pytest.mark.parametrize("query", ["*", '"', "(", "++", "\0", "\u200b", "-", "' OR 1=1 --", "\ufffd", "::", "\ud83d"])
def test_signs_alone_are_a_search_that_finds_what_words_there_are_in_it(planted: Path, query: str) -> None:
    """S69: never an error. Only the one with words in it finds anything."""
    assert bool(ask(planted, query)) == (" OR " in query)


@pytest.mark.parametrize("query", ["", " ", "\n\t", "\u3000", "x" * 10_001])
def test_a_blank_or_overlong_query_is_refused_with_what_is_allowed(planted: Path, query: str) -> None:
    with pytest.raises(BadQuery, match="10000 characters"):
        ask(planted, query)


@pytest.mark.parametrize(
    "query",
    [
        "POL-358 " + "y" * 9_992,
        ("filler " * 499) + "grammar",
        " ".join(f"word{number}" for number in range(499)) + " grammar",
        ("a-" * 5_000)[:9_990] + " grammar",
        "".join(chr(0x4E00 + number) for number in range(9_990)) + " grammar",
        '"' * 9_990 + " grammar",
        "( " * 4_990 + " grammar",
    ],
    ids=["long word", "500 words", "500 different words", "one piece", "9990 characters of CJK", "quotes", "brackets"],
)
def test_ten_thousand_characters_and_five_hundred_words_are_fine(planted: Path, query: str) -> None:
    """S69: and the one word in it that is in a text finds it."""
    assert "planted" in titles(ask(planted, query, limit=3, deadline_s=30))


def test_a_pasted_paragraph_finds_the_report_it_was_taken_from(planted: Path) -> None:
    assert titles(ask(planted, PLANTED))[0] == "planted"


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("naïve façade über Ångström", "naive"),
        ("naive facade", "façade"),
        ("the lighthouse was rebuilding", "rebuilt rebuilds"),
        ("several hypotheses were testable: running tests", "run test"),
        ("ΑΘΗΝΑ και Москва", "αθηνα"),
        ("ΑΘΗΝΑ και Москва", "москва"),
        ("cafe\u0301 noir", "café"),
        ("việt nam đẹp", "viet"),
        ("शिव की नगरी", "नगरी"),
        ("straße und weiß", "straße"),
        ("Ｆｕｌｌｗｉｄｔｈ", "ｆｕｌｌｗｉｄｔｈ"),
        ("Foo™ and ©2026", "foo"),
        ("Foo™ and ©2026", "2026"),
        ("½ of ② items", "②"),
    ],
)
def test_accents_fold_and_english_stems_and_other_alphabets_are_words(tmp_path: Path, text: str, query: str) -> None:
    assert len(ask(tmp_path, query, report(text))) == 1


CJK = "今日は東京タワーに行きました。北京大学和清华大学在北京。서울특별시에서 만나요. ภาษาไทยไม่มีช่องว่าง. The 日本語mixed文 case."


@pytest.mark.parametrize(
    "query",
    ["東京", "東京タワー", "タワー", "京", "行き", "行きました", "北京", "清华大学", "大学", "서울", "특별시", "만나", "ภาษา", "ไทย",
     "日本語", "mixed", "日本語mixed文", "文 case", "東京 タワー", "서울 만나요", "日本 北京"],
)  # fmt: skip
def test_cjk_is_found_from_one_character_up_inside_text_without_spaces(tmp_path: Path, query: str) -> None:
    decoys = [report("京都の東は山。大きい学校。", heading="decoy"), report("언제 어디서", heading="decoy 2", key="d2")]
    assert "planted" in titles(ask(tmp_path, query, *decoys, report(CJK, heading="planted"), limit=2))


def test_the_same_characters_in_another_order_are_another_word(tmp_path: Path) -> None:
    hits = ask(tmp_path, "東京", report("京は東にある", heading="other"), report("東京にある", heading="right"))
    assert titles(hits)[0] == "right"
    assert hits[0].score > hits[1].score + 0.5


def test_korean_and_japanese_written_decomposed_are_found_composed(tmp_path: Path) -> None:
    """Names of files come so from some systems."""
    assert ask(tmp_path, "한국어", report("\u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165 문서"))
    assert ask(tmp_path, "ガイド", report("カ\u3099イト\u3099 の本", key="guide"))


@pytest.mark.parametrize("text", [CJK, "Launch🎉 now", "plain", "zero\u200bwidth 東京"])
def test_what_sets_words_apart_in_the_index_is_never_seen(run: Any, tmp_path: Path, text: str) -> None:
    """No U+200B in snippets and headings; the text itself comes back byte for byte, its own ones too."""

    async def story() -> None:
        async with library(tmp_path, report(text, heading=f"About {text}")) as store:
            (hit,) = await store.search("東京 launch plain", OWNER)
            assert hit.heading == f"About {text}"
            assert hit.snippet == text.replace("\u200b", "")
            stored = await store.document(OWNER, hit.id)
            assert stored and stored.text == text

    run(story())


def test_what_cannot_be_stored_is_made_clean_and_hides_nothing(run: Any, tmp_path: Path) -> None:
    dirty = report(
        "lone\ud800surrogate and nul\0inside", heading="h\0\udfff", source="s\ud800", key="k\0", job_id="bg-\0"
    )

    async def story() -> None:
        async with library(tmp_path, dirty, dirty) as store:
            for word in ("lone", "surrogate", "nul", "inside", "nul\0inside"):
                (hit,) = await store.search(word, OWNER, session="s\ud800")
                assert hit.snippet == "lone surrogate and nul inside"
            stored = await store.document(OWNER, hit.id)
            assert stored and stored.text == "lone\ufffdsurrogate and nul\ufffdinside"
            assert stored.heading == "h\ufffd\ufffd"
            assert await store.erase_jobs(OWNER, ["bg-\0"], NOON + 10 * HOUR) == 1

    run(story())
