"""A search of a data folder for what must not be there: words in any file and any opened cell, and sealed cells as bytes.

That a word cannot be read without the key is not enough: neither it nor its ciphertext may be in a file.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from background.sealing import SEALED, key_file
from tests.support.server import Process

NOTHING_LEFT = 0


def rows(data: Path, sql: str, **params: Any) -> list[dict[str, Any]]:
    """Rows of a registry that its server has open, read by another process's connection, which is closed at once."""
    with closing(sqlite3.connect(f"file:{data}/outrider.db?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute(sql, params)]


def places(data: Path, word: str) -> list[str]:
    """Where a word stands: files, and tables with the column. Sorted, each once."""
    needle = word.encode()
    return sorted({where for where, said in _everything(data) if needle in said})


def cells(data: Path, word: str) -> list[bytes]:
    """The sealed cells in which the word stands now."""
    return [cell for _, cell, text in _opened(data) if word in text]


def bytes_left(data: Path, sealed: list[bytes]) -> list[str]:
    """The files that still hold one of these cells, or its first half: a cell may be cut in two by a page."""
    parts = [cell[: max(32, min(len(cell) // 2, 200))] for cell in sealed]
    return sorted(path.name for path in _files(data) if any(part in path.read_bytes() for part in parts))


def last_errors(data: Path, kind: str) -> str:
    """Why runs of a kind wait to be tried again."""
    vault = key_file(data / "seal.keys", make=False)
    found = rows(data, "select key, last_error from runs where kind = :kind and last_error is not null", kind=kind)
    return "; ".join(vault.unseal("runs.last_error", row["key"], row["last_error"]) for row in found)


def cleaned(server: Process) -> None:
    """Waits until no `erase` run is left to do: then the bytes are gone too."""
    open_runs = "select count(*) as n from runs where kind = 'erase' and ended_at is null"
    server.wait(lambda: rows(server.data, open_runs)[0]["n"] == NOTHING_LEFT)


def _files(data: Path) -> Iterator[Path]:
    return (path for path in data.rglob("*") if path.is_file())


def _everything(data: Path) -> Iterator[tuple[str, bytes]]:
    for path in _files(data):
        yield f"file {path.name}", path.read_bytes()
    for where, _, text in _opened(data):
        yield where, text.encode()
    for (table,) in _tables(data):
        for row in rows(data, f"select * from {table}"):
            for column, value in row.items():
                yield f"{table}.{column}", value if isinstance(value, bytes) else str(value).encode()


def _tables(data: Path) -> list[tuple[str]]:
    return [(row["name"],) for row in rows(data, "select name from sqlite_master where type = 'table'")]


def _opened(data: Path) -> Iterator[tuple[str, bytes, str]]:
    """Every cell: where it stands, its bytes, its text."""
    vault = key_file(data / "seal.keys", make=False)
    for table, (names, columns) in SEALED.items():
        for row in rows(data, f"select * from {table}"):
            place = "/".join(str(row[name]) for name in names)
            for column in columns:
                if row[column] is not None:
                    yield f"{table}.{column}", row[column], vault.unseal(f"{table}.{column}", place, row[column])
