"""Which documents answer a question, and in which order. Runs on a reader's thread, in one snapshot, and only reads.

All words first, then any. Four roads, each taken only while hits are too few: what was typed, sign for sign; what was
typed together stands together; all words in one chunk; any of the rarest words, documents with more of them first.
The whole part of a score says by which road a hit came, so that scores fall as the list goes on.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import apsw

from knowledge import query, trust
from knowledge.backend import Hit, StoreFailed
from knowledge.connection import rows, snapshot
from knowledge.documents import CHUNK_BITS, document_id
from knowledge.query import Question, Tokenize

MOST_TOGETHER = 64  # words; more hardly fit into one chunk, and each costs a cursor
RAREST = 4
COMMON = 4_000  # chunks; where a rarer word is there, one in more chunks than this says little and costs much
MOST_COUNTED = 2_000  # words, the longest ones, of which it is found out how rare they are
COUNTED = 100_000  # chunks that are counted at most, for all words, to find out which are rare
WEIGHED = 1_000  # chunks with all words that may come up; their documents are the hits
LEADING = 200  # documents with the most of the rarest words, that are weighed in full
LOOKED_THROUGH = 200  # chunks that are read to see whether `C++` stands there, and not just the letter
LOST = "the knowledge store failed: its index and its rows do not agree"

_SCORE = "-bm25(chunk_index, 4.0, 1.0)"  # a word in the heading counts four times one in the text
_DOCUMENT = f"cross join document d on d.id = chunk_index.rowid >> {CHUNK_BITS}"
_IN_SCOPE = """(d.owner is null or d.owner = :owner) and (:session is null or d.source = :session)
    and (:source_type is null or d.source_type = :source_type)
    and min(d.trust, coalesce(d.made_of, d.trust)) >= :min_trust"""

_WITH_ALL = f"""
    select chunk_index.rowid, {_SCORE} as score from chunk_index {_DOCUMENT}
    where chunk_index match :match and {_IN_SCOPE} order by score desc limit {WEIGHED}"""
_UP_TO_CAP = "(select rowid from chunk_index where chunk_index match :match limit :cap) chunk_index"
_COUNT = f"""
    select (select count(*) from {_UP_TO_CAP}), exists (select 1 from {_UP_TO_CAP} {_DOCUMENT} where {_IN_SCOPE})"""
_HAS_WORD = (
    f"select distinct rowid >> {CHUNK_BITS} as id, :weight%d as weight from chunk_index where chunk_index match :w%d"
)
_LEADING = f"""
    select d.id, has.words
    from (select id, count(*) as words, sum(weight) as weight from (%s) group by id) has
    cross join document d on d.id = has.id where {_IN_SCOPE}
    order by has.words desc, has.weight desc, d.id desc limit {LEADING}"""
_AMONG = f"""
    select rowid, {_SCORE} as score from chunk_index
    where chunk_index match :match and rowid >> {CHUNK_BITS} in (select value from json_each(:ids)) order by score desc"""
_KNOWN = "select 1 from chunk_index where chunk_index match ? and rowid = ?"
_HIT = f"""
    select d.id, d.heading, d.source, d.source_type, d.trust, d.made_of, d.job_id, d.created_at, c.text, c.start
    from chunk c join document d on d.id = c.id >> {CHUNK_BITS} where c.id = ?"""


@dataclass(frozen=True, slots=True)
class Scope:
    """What may be seen at all, and what it is narrowed to. The fields are the parameters of the statements."""

    owner: str
    session: str | None
    source_type: str | None
    min_trust: int

    def parameters(self, **more: Any) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | more


@dataclass(frozen=True, slots=True)
class Found:
    """A chunk that answers, with its score."""

    chunk: int
    score: float

    @property
    def document(self) -> int:
        return self.chunk >> CHUNK_BITS


def search(db: apsw.Connection, text: str, scope: Scope, limit: int) -> list[Hit]:
    """At most `limit` documents, the best first, each with its best chunk's snippet."""
    tokenize = _tokenizer(db)
    question = query.read(text, tokenize)
    with snapshot(db):
        best = _first_of_each(_found(db, question, scope), limit)
        if not best:
            _must_answer(db, tokenize)
        return [_hit(db, one, question, tokenize) for one in best]


def _must_answer(db: apsw.Connection, tokenize: Tokenize) -> None:
    """Before "nothing" is said: the index must find a chunk that is known to be there. An emptied one is no answer."""
    newest = db.execute("select max(id) from document where chunks > 0").get
    if newest is None:
        return
    first = newest << CHUNK_BITS
    words = query.read(_text(db, first), tokenize).words
    if words and not rows(db, _KNOWN, (words[0], first)):
        raise StoreFailed(LOST)


def _text(db: apsw.Connection, chunk: int) -> str:
    """A chunk as it is indexed, with its heading. Raises StoreFailed: what was found, or counted, must be there."""
    text = db.execute("select heading || char(10) || text from chunk where id = ?", (chunk,)).get
    if text is None:
        raise StoreFailed(LOST)
    return text


def _tokenizer(db: apsw.Connection) -> Tokenize:
    tokenizer = db.fts5_tokenizer(*query.TOKENIZER)
    return lambda text: tokenizer(text.encode(), apsw.FTS5_TOKENIZE_QUERY, None, include_colocated=False)  # type: ignore[return-value]


def _found(db: apsw.Connection, question: Question, scope: Scope) -> Iterator[Found]:
    """Chunks road by road, best first; a road that nobody asks for is not taken."""
    if 0 < len(question.words) <= MOST_TOGETHER:
        together = _with_all(db, question.units, scope, road=2)
        yield from together if question.is_plain else _as_typed(db, together, question)
        if question.units != question.words:
            yield from _with_all(db, question.words, scope, road=1)
    if len(question.words) > 1:
        yield from _with_any(db, dict.fromkeys((*question.units, *question.words)), scope)


def _with_all(db: apsw.Connection, expressions: Iterable[str], scope: Scope, road: int) -> Iterator[Found]:
    for chunk, weight in db.execute(_WITH_ALL, scope.parameters(match=query.every(expressions))):
        yield Found(chunk, road + _share(weight))


def _as_typed(db: apsw.Connection, found: Iterator[Found], question: Question) -> Iterator[Found]:
    """The same chunks; of the first of them, those in which it stands sign for sign go before, one road up."""
    looked_at = list(islice(found, LOOKED_THROUGH))
    typed = {one for one in looked_at if question.stands_in(_text(db, one.chunk))}
    yield from (replace(one, score=one.score + 1) for one in looked_at if one in typed)
    yield from (one for one in looked_at if one not in typed)
    yield from found


def _with_any(db: apsw.Connection, expressions: Iterable[str], scope: Scope) -> Iterator[Found]:
    """The best chunk of each document with any of the rarest words, documents with more of them first.

    Two steps, because weighing costs ten times as much as finding: which documents have most of the words, then the
    weight of the chunks of these.
    """
    rare = _rarest(db, expressions, scope)
    if not rare:
        return
    leading = _leading(db, rare, scope)
    match = " OR ".join(rare)
    weighed = db.execute(_AMONG, {"match": match, "ids": json.dumps(list(leading))})
    best = _first_of_each((Found(chunk, _share(weight)) for chunk, weight in weighed), len(leading))
    scored = (replace(one, score=(leading[one.document] - 1 + one.score) / len(rare)) for one in best)
    yield from sorted(scored, key=lambda one: one.score, reverse=True)


def _leading(db: apsw.Connection, rare: dict[str, int], scope: Scope) -> dict[int, int]:
    """Documents and how many of the words each has; of equally many, those with the rarer ones, then the newest."""
    has_word = " union all ".join(_HAS_WORD % (number, number) for number in range(len(rare)))
    words = {f"w{number}": word for number, word in enumerate(rare)}
    weights = {f"weight{number}": 1 / count for number, count in enumerate(rare.values())}
    return dict(rows(db, _LEADING % has_word, scope.parameters(**words, **weights)))


def _rarest(db: apsw.Connection, expressions: Iterable[str], scope: Scope) -> dict[str, int]:
    """The rarest of those that are in scope at all, with the number of chunks they are in, in scope or not.

    Counting ends at a cap, so that "the" costs no more than others. A word that reaches it is taken only where there
    is no rarer one. (The vocabulary table would read a word's whole list, and knows no phrases.)
    """
    expressions = sorted(expressions, key=len, reverse=True)[:MOST_COUNTED]
    cap = min(COMMON, COUNTED // len(expressions))
    counts = {one: db.execute(_COUNT, scope.parameters(match=one, cap=cap)).get for one in expressions}
    rare = {one: count for one, (count, in_scope) in counts.items() if count < cap and in_scope}
    if not rare:
        rare = {one: count for one, (count, _) in counts.items() if count == cap}
    return dict(sorted(rare.items(), key=lambda one: one[1])[:RAREST])


def _share(weight: float) -> float:
    """bm25, which has no upper bound, as a number between 0 and 1."""
    return weight / (1 + weight)


def _first_of_each(found: Iterable[Found], limit: int) -> list[Found]:
    """The first chunk of each document, until there are `limit`."""
    best: dict[int, Found] = {}
    for one in found:
        best.setdefault(one.document, one)
        if len(best) == limit:  # at once: to ask for another might take the next road
            break
    return list(best.values())


def _hit(db: apsw.Connection, found: Found, question: Question, tokenize: Tokenize) -> Hit:
    row = db.execute(_HIT, (found.chunk,)).get
    if row is None:
        raise StoreFailed(LOST)
    document, heading, source, source_type, tier, made_of, job_id, created_at, text, start = row
    return Hit(
        id=document_id(document),
        heading=heading,
        snippet=query.snippet(text, question.stems, tokenize),
        score=found.score,
        source=source,
        source_type=source_type,
        trust=tier,
        trust_label=trust.label(tier),
        job_id=job_id,
        created_at=created_at,
        offset=start,
        made_of=made_of,
    )
