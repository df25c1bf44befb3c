"""People's words: how text and question are made alike for the index, and which match expressions a question becomes.

Owns the cleaning of text, the setting apart of characters that are words by themselves, and the snippet's window.
It reads no table. Nothing that a person types is ever query syntax here: every word goes to FTS5 in quotes.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

TOKENIZER = ("porter", ["unicode61", "remove_diacritics", "2", "categories", "L* N* Co So"])  # as in schema.sql
SNIPPET_CHARS = 600
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t#]*$", re.MULTILINE)  # on one line it would run into what follows
_CUT_AT_START, _CUT_AT_END = re.compile(r"^\S{0,40}(?=\s)|^.."), re.compile(r"(?<=\s)\S{0,40}$|..$")

Tokenize = Callable[[str], list[tuple[int, int, str]]]  # text → (start, end, stem) of each word, in UTF-8 bytes

_APART = "\u200b"  # no word character, so the tokenizer cuts there; has no width, and is taken out again
_PUNCTUATION = ".,;:!?()[]{}\"'“”‘’«»…。、"  # around a word it says nothing about the word
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
# Scripts written without spaces, and symbols (emoji): each character is a word, or nothing inside a run could be found.
_WORD_BY_ITSELF = re.compile(
    "[\u0e00-\u0eff\u1000-\u11ff\u1780-\u17ff\u2e80-\u2fff\u3005-\u3007\u3021-\u3029\u3031-\u303f\u3040-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U0001b000-\U0001b16f"
    "\U00020000-\U0003ffff"
    "\u00a6\u00a9\u00ae\u00b0\u2100-\u214f\u2190-\u2bff\U0001f000-\U0001faff]+"
)


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked. All but the last are match expressions, quoted words, all distinct and in order of asking.

    `words` are the single words. `units` are what should stand together: of a piece without spaces that has several
    words (`POL-358`, `config.toml`, 東京都) its neighbouring pairs, of any other its word. `typed` is the whole as it
    was typed, `signs` its pieces with signs that the index does not know (`C++`, `50%`), both folded. `stems` are the
    words as the index has them.
    """

    words: tuple[str, ...]
    units: tuple[str, ...]
    typed: str
    signs: tuple[str, ...]
    stems: frozenset[str]

    @property
    def is_plain(self) -> bool:
        """One word without signs: wherever its word stands, it stands as it was typed."""
        return self.typed.isalnum()

    def stands_in(self, text: str) -> bool:
        """Whether it stands in the text sign for sign: as a whole, or at least each of its pieces with signs."""
        folded = _folded(text)
        return self.typed in folded or (bool(self.signs) and all(piece in folded for piece in self.signs))


def clean(text: str) -> str:
    """The text with what SQLite or FTS5 cannot hold (lone surrogates, NUL) replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def searchable(text: str) -> str:
    """A cleaned text as the index gets it: composed, and each character that is a word by itself set apart."""
    if text.isascii():
        return text
    return _WORD_BY_ITSELF.sub(_set_apart, unicodedata.normalize("NFC", text.replace("\ufffd", " ")))


def _set_apart(run: re.Match[str]) -> str:
    return _APART + _APART.join(run[0]) + _APART


def visible(text: str) -> str:
    """The reverse of `searchable`, for eyes."""
    return text.replace(_APART, "")


def _folded(text: str) -> str:
    return " ".join(visible(text).casefold().split())


def read(query: str, tokenize: Tokenize) -> Question:
    """A person's words as a question. None of them may be in it: `++` is a question without words."""
    words: dict[str, str] = {}
    units: dict[tuple[str, ...], str] = {}
    text = searchable(clean(query))
    for piece in text.split():
        found = _words(piece, tokenize)
        words.update(found)
        for pair in pairwise(found) if len(found) > 1 else [(one,) for one in found]:
            units[tuple(stem for stem, _ in pair)] = _quoted(*(word for _, word in pair))
    pieces = dict.fromkeys(piece.strip(_PUNCTUATION) for piece in _folded(text).split())
    signs = tuple(piece for piece in pieces if piece and not piece.isalnum())
    quoted = tuple(_quoted(word) for word in words.values())
    return Question(quoted, tuple(units.values()), _folded(text), signs, frozenset(words))


def _words(piece: str, tokenize: Tokenize) -> list[tuple[str, str]]:
    data = piece.encode()
    return [(stem, data[start:end].decode()) for start, end, stem in tokenize(piece)]


def _quoted(*words: str) -> str:
    """Words as one FTS5 string: a phrase, whatever they are. The tokenizer leaves no quotation mark in a word."""
    return f'"{" ".join(words)}"'


def every(expressions: Iterable[str]) -> str:
    """The match expression for chunks with all of these."""
    return " AND ".join(expressions)


def snippet(text: str, stems: frozenset[str], tokenize: Tokenize) -> str:
    """The window of at most SNIPPET_CHARS of a chunk with the most different words of the question, on one line."""
    plain = visible(text)
    start = _window(_places(text, stems, tokenize)) if len(plain) > SNIPPET_CHARS else 0
    start = max(0, min(start, len(plain) - SNIPPET_CHARS))
    end = start + SNIPPET_CHARS
    inner = plain[start:end]
    if start:
        inner = _CUT_AT_START.sub("…", inner, count=1)
    if end < len(plain):
        inner = _CUT_AT_END.sub("…", inner, count=1)
    return " ".join(_HEADING.sub(r"\1 —", inner).split())


def _places(text: str, stems: frozenset[str], tokenize: Tokenize) -> list[tuple[int, str]]:
    """Where the question's words are in the visible text, in characters."""
    data = text.encode()
    return [(len(visible(data[:start].decode())), stem) for start, _, stem in tokenize(text) if stem in stems]


def _window(places: Sequence[tuple[int, str]]) -> int:
    """Where the best window begins: a little before the first of its words."""
    margin, best, most, first = SNIPPET_CHARS // 6, 0, 0, 0
    inside: Counter[str] = Counter()
    for at, stem in places:
        inside[stem] += 1
        while at - places[first][0] > SNIPPET_CHARS - 2 * margin:
            inside -= Counter([places[first][1]])
            first += 1
        if len(inside) > most:
            most, best = len(inside), places[first][0]
    return best - margin
