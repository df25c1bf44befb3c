"""The rows of the store: taking a document in, superseding, listing, erasing. Plain functions of a connection.

The only writer of the tables of schema.sql. Each function is one transaction, run whole on the connection's thread.
It reads no clock: times are the caller's.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import apsw

from knowledge import chunking, trust
from knowledge.backend import Counts, Document, Page, Stored
from knowledge.connection import rows, transaction
from knowledge.query import clean, searchable

CHUNK_BITS = 20  # a chunk's id is document_id << CHUNK_BITS | number
INDEXED_HEADING = 300  # characters of a document's heading that each of its chunks repeats in the index
CHECKPOINT_WAIT_MS = 200
PAGES_A_STEP = 200
TOO_LATE = "a newer report of the same job was there first"

_STORED = """id, key, owner, source, source_type, heading, trust, made_of, job_id, created_at, chars, chunks,
    superseded_at, superseded_reason"""
_INSERT = """
    insert into document (id, owner, key, source, source_type, heading, trust, made_of, job_id, created_at, chars,
        chunks, superseded_at, superseded_reason)
    values (:id, :owner, :key, :source, :source_type, :heading, :trust, :made_of, :job_id, :created_at, :chars,
        :chunks, :superseded_at, :superseded_reason)
    returning id"""
_OF_THE_SAME_JOB = """
    select id, created_at from document
    where owner is :owner and job_id = :job_id and key <> :key and superseded_at is null"""
_MATCHING = """owner is %s and id < :before and (:source is null or source = :source)
    and (:source_type is null or source_type = :source_type) order by id desc limit :limit"""
_PAGE = f"""
    select {_STORED} from document where id in (
        select * from (select id from document where {_MATCHING % ":owner"})
        union all select * from (select id from document where {_MATCHING % "null"}))
    order by id desc limit :limit"""


def document_id(number: int) -> str:
    """A document's id as it is shown outside."""
    return f"doc-{number}"


def number_of(shown: str) -> int | None:
    """The row that an id as shown means; None if no row can have it."""
    digits = shown.removeprefix("doc-")
    sound = shown.startswith("doc-") and digits.isascii() and digits.isdigit() and len(digits) < 19
    return int(digits) if sound else None


def put(db: apsw.Connection, document: Document) -> int:
    """See Backend.put. A key that was superseded stays so: what an old attempt writes late brings nothing back."""
    row: dict[str, Any] = {name: clean(it) if isinstance(it, str) else it for name, it in asdict(document).items()}
    chunks = _chunks(row)  # before the transaction: it takes its time, and needs no lock
    row["trust"] = trust.known(row["trust"])
    row["made_of"] = None if row["made_of"] is None else trust.known(row["made_of"])
    with transaction(db):
        if rows(db, "select 1 from erased where job_id = :job_id and at >= :created_at", row):
            return 0
        row |= _place(db, row)
        stands = row["superseded_at"] is None
        if stands:
            _supersede_others(db, row)
        row |= {"chars": len(row["text"]), "chunks": len(chunks) * stands}
        number = db.execute(_INSERT, row).get
        db.execute("insert into body (document_id, text) values (?, ?)", (number, row["text"]))
        if stands:
            numbered = ((number << CHUNK_BITS | place, *chunk) for place, chunk in enumerate(chunks))
            db.executemany("insert into chunk (id, heading, text, start) values (?, ?, ?, ?)", numbered)
    return len(chunks) * stands


def _chunks(row: dict[str, Any]) -> list[tuple[str, str, int]]:
    """What the index gets: heading with the headings above, text, and where it begins."""
    heading, text = row["heading"][:INDEXED_HEADING], row["text"]
    return [
        (searchable(f"{heading} › {one.headings}"), searchable(text[one.start : one.end]), one.start)
        for one in chunking.chunks(text)
    ]


def _place(db: apsw.Connection, row: dict[str, Any]) -> dict[str, Any]:
    """Makes room under the row's key. Returns its id, None for a new one, and whether it comes superseded."""
    query = "select id, superseded_at, superseded_reason from document where owner is :owner and key = :key"
    number, superseded_at, reason = db.execute(query, row).get or (None, None, None)
    if number is not None:
        _erase(db, number)
    if superseded_at is None and any(at > row["created_at"] for _, at in rows(db, _OF_THE_SAME_JOB, row)):
        superseded_at, reason = row["created_at"], TOO_LATE
    return {"id": number, "superseded_at": superseded_at, "superseded_reason": reason}


def _supersede_others(db: apsw.Connection, row: dict[str, Any]) -> None:
    """The job's other reports stay to be read, and leave the index."""
    for number, _ in rows(db, _OF_THE_SAME_JOB, row):
        _erase_chunks(db, number)
        db.execute(
            "update document set chunks = 0, superseded_at = ?, superseded_reason = ? where id = ?",
            (row["created_at"], f"superseded by {row['key']}", number),
        )


def erase(db: apsw.Connection, condition: str, *parameters: str | int | None) -> int:
    """Erases the documents of a condition of ours, superseded ones too. Returns how many."""
    with transaction(db):
        found = rows(db, f"select id from document where {condition}", parameters)
        for (number,) in found:
            _erase(db, number)
        return len(found)


def erase_jobs(db: apsw.Connection, owner: str | None, job_ids: list[str], at: int) -> int:
    """Erases the reports of jobs, and remembers when: one that is from before and comes late is not taken in."""
    with transaction(db):
        found = [
            number
            for job_id in job_ids
            for (number,) in rows(db, "select id from document where owner is ? and job_id = ?", (owner, job_id))
        ]
        remember = "insert into erased values (?, ?) on conflict do update set at = max(at, excluded.at)"
        db.executemany(remember, ((job_id, at) for job_id in job_ids))
        for number in found:
            _erase(db, number)
        return len(found)


def _erase(db: apsw.Connection, number: int) -> None:
    _erase_chunks(db, number)
    db.execute("delete from document where id = ?", (number,))  # its body goes with it


def _erase_chunks(db: apsw.Connection, number: int) -> None:
    db.execute("delete from chunk where id >= ? and id < ?", (number << CHUNK_BITS, (number + 1) << CHUNK_BITS))


def begin_merge(db: apsw.Connection) -> None:
    """Marks all parts of the index for merging: deleted words are in the older parts until then."""
    db.execute("insert into chunk_index (chunk_index, rank) values ('merge', ?)", (-PAGES_A_STEP,))


def merge(db: apsw.Connection) -> bool:
    """One step of merging, short enough for a put to wait for. False once there is nothing left to do."""
    before = db.total_changes()
    db.execute("insert into chunk_index (chunk_index, rank) values ('merge', ?)", (PAGES_A_STEP,))
    return db.total_changes() - before > 1  # FTS5 says in this way whether it did anything


def changes(db: apsw.Connection) -> tuple[int, int]:
    """Something that is another after each change of the file, by this connection or another."""
    return db.pragma("data_version"), db.total_changes()


def rewrite(db: apsw.Connection) -> None:
    """Writes all rows into fresh pages. Where SQLite has moved rows from page to page, copies stay in the gaps, which
    deleting a row does not reach.
    """
    db.execute("vacuum")


def checkpoint(db: apsw.Connection) -> bool:
    """Writes the log into the file and empties it; False where a reader, or another process, is in the way."""
    wait_ms = db.pragma("busy_timeout")
    db.set_busy_timeout(CHECKPOINT_WAIT_MS)
    try:
        busy, _, _ = db.execute("pragma wal_checkpoint(truncate)").get
    finally:
        db.set_busy_timeout(wait_ms)
    return not busy


def page(db: apsw.Connection, filters: dict[str, Any], limit: int) -> Page:
    """The owner's documents and shared ones, the newest first."""
    found = list(_stored(db, _PAGE, filters | {"limit": limit + 1}))
    return Page(found[:limit], found[limit - 1].id if len(found) > limit else "")


def read(db: apsw.Connection, owner: str, number: int | None) -> Stored | None:
    """One document with its text, if it is the owner's or shared."""
    where = "where id = :id and (owner = :owner or owner is null)"
    query = f"select {_STORED}, text from document join body on document_id = id {where}"
    return next(_stored(db, query, {"id": number, "owner": owner}), None)


def _stored(db: apsw.Connection, query: str, parameters: dict[str, Any]) -> Iterator[Stored]:
    return (Stored(document_id(number), *rest) for number, *rest in rows(db, query, parameters))


def counts(db: apsw.Connection) -> Counts:
    """How much there is."""
    standing = "count(*) filter (where superseded_at is null)"
    query = f"select {standing}, count(superseded_at), coalesce(sum(chunks), 0) from document"
    return Counts(*rows(db, query)[0])
