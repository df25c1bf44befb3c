"""Sealing: what was said, answered or entrusted to us stands in the registry as ciphertext, and only there.

A cell is AES-256-GCM with a nonce of its own, bound to table, column and row, with the key's id in front. A cell that
was altered or moved cannot be read, and is never taken for another's. Owns `seals`, and the list of what is sealed,
which rotation and the upgrade from plain text walk. It knows no meaning of any text.
"""

import base64
import hashlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from background.errors import Unsealable, UnusableDatabase

FORM = b"\x01"  # the only form of a cell so far
KEY_BYTES = 32
ID_BYTES = 4
NONCE_BYTES = 12
HEAD = len(FORM) + ID_BYTES + NONCE_BYTES
MARK = "outrider"
BATCH = 500  # rows that rotation brings over in one transaction


class Sealed(NamedTuple):
    """Which columns of a table are sealed, and which of them name a row to its seals."""

    row: tuple[str, ...]
    columns: tuple[str, ...]


# The one inventory of what people said and models answered. Scrubbing and erasing take whole cells or rows of these.
SEALED: Mapping[str, Sealed] = {
    "sessions": Sealed(("uid",), ("title",)),
    "tasks": Sealed(("id",), ("detail",)),
    "results": Sealed(("task_id",), ("artifacts", "partial")),
    "checkpoints": Sealed(("task_id", "name"), ("content",)),
    "questions": Sealed(("task_id", "revision"), ("content",)),
    "fragments": Sealed(("task_id", "revision"), ("content",)),
    "webhooks": Sealed(("task_id", "id"), ("url", "token", "scheme", "credentials")),
    "runs": Sealed(("key",), ("last_error",)),
    "messages": Sealed(("session", "uid"), ("text", "content")),
    "jobs": Sealed(("id",), ("description", "prompt", "detail", "excerpt", "follow_up")),
    "failures": Sealed(("run_id", "attempt"), ("error",)),
    "deliveries": Sealed(("job_id", "attempt"), ("last_error",)),
    "events": Sealed(("session", "uid"), ("data",)),
    "gists": Sealed(("session",), ("content",)),
    "memories": Sealed(("id",), ("content",)),
}


class Vault:
    """Seals and unseals cells. The first key seals; the others only open what they have sealed."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self.keys = tuple(keys)
        if not self.keys or any(len(key) != KEY_BYTES for key in self.keys):
            raise ValueError(f"a sealing key has {KEY_BYTES} bytes")
        self._ciphers = {_id_of(key): AESGCM(key) for key in self.keys}
        self._first = _id_of(self.keys[0])
        self._cipher = self._ciphers[self._first]
        self._head = FORM + self._first

    @property
    def key_id(self) -> str:
        """The id of the key that seals."""
        return self._first.hex()

    @property
    def key_ids(self) -> tuple[str, ...]:
        return tuple(key.hex() for key in self._ciphers)

    def seal(self, column: str, row: str, text: str) -> bytes:
        """`text` as a cell of `column` ("table.column") in the row that `row` names. Raises `UnicodeEncodeError`."""
        nonce = os.urandom(NONCE_BYTES)
        return self._head + nonce + self._cipher.encrypt(nonce, text.encode(), _place(column, row))

    def unseal(self, column: str, row: str, cell: bytes) -> str:
        """The text of a cell. Raises `Unsealable` for one that was altered or moved, or whose key is not there."""
        if not isinstance(cell, bytes) or cell[:1] != FORM or len(cell) < HEAD:
            raise Unsealable(f"{column} of {row} is not sealed")
        cipher = self._ciphers.get(cell[1 : 1 + ID_BYTES])
        if cipher is None:
            raise Unsealable(f"{column} of {row} is sealed with key {sealed_by(cell)}, which is not there")
        try:
            return cipher.decrypt(cell[1 + ID_BYTES : HEAD], cell[HEAD:], _place(column, row)).decode()
        except InvalidTag:
            raise Unsealable(f"{column} of {row} was altered, or moved from elsewhere") from None


def sealed_by(cell: bytes) -> str:
    """The id of the key that a cell was sealed with."""
    return cell[1 : 1 + ID_BYTES].hex()


def _place(column: str, row: str) -> bytes:
    return f"{column}\0{row}".encode()


def _id_of(key: bytes) -> bytes:
    return hashlib.sha256(b"outrider seal " + key).digest()[:ID_BYTES]


# -- keys


def new_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def parse_keys(text: str) -> tuple[bytes, ...]:
    """Keys out of a setting or a file: base64 of 32 bytes each, separated by commas or lines; the first seals.

    Raises `ValueError` without naming what was given.
    """
    words = text.replace(",", "\n").split()
    keys = tuple(base64.b64decode(word, validate=True) for word in words)
    if not keys or any(len(key) != KEY_BYTES for key in keys):
        raise ValueError("not sealing keys")
    return keys


def key_file(path: Path, *, make: bool = True, wanted: Collection[str] = ()) -> Vault:
    """The vault of a key file. Where there is none it is made (mode 0600), unless `make` is False: a new key would hide
    that the old one is lost. Raises `UnusableDatabase`, which names the ids of the keys that are `wanted`.
    """
    sealed = f"the registry was sealed with {_keys(wanted)}; " if wanted else ""
    if not path.exists():
        if not make:
            raise UnusableDatabase(f"{path} is not there; {sealed}put back the file that was there")
        write_keys(path, (new_key(),), new=True)
    try:
        return Vault(parse_keys(path.read_text()))
    except ValueError:
        raise UnusableDatabase(f"{path} holds no sealing keys; {sealed}put back the file that was there") from None


def _keys(ids: Collection[str]) -> str:
    return f"{'keys' if len(ids) > 1 else 'key'} {', '.join(ids)}"


def write_keys(path: Path, keys: Iterable[bytes], *, new: bool = False) -> None:
    """Write a key file whole or not at all; a `new` one never replaces a file that another process has just made."""
    written = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    text = "".join(f"{base64.b64encode(key).decode()}\n" for key in keys)
    with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if new:
        try:
            os.link(written, path)
        except FileExistsError:
            pass
        finally:
            written.unlink()
    else:
        written.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


# -- a file and its keys


def sealed_with(connection: sqlite3.Connection) -> tuple[str, ...]:
    """The ids of the keys without which this file cannot be read; none where nothing was ever sealed in it."""
    there = connection.execute("select 1 from sqlite_master where type = 'table' and name = 'seals'").fetchone()
    found = connection.execute("select key_id from seals order by created_at, key_id").fetchall() if there else []
    return tuple(row[0] for row in found)


def require_keys(connection: sqlite3.Connection, vault: Vault) -> None:
    """Refuse a registry whose keys are not all there; it changes nothing.

    Raises `UnusableDatabase` with one line: without its key nothing here could be read, and an answer that cannot be
    read must not look like one that is not there.
    """
    missing = [key_id for key_id in sealed_with(connection) if not _opens(connection, vault, key_id)]
    if missing:
        are, them = ("which are", "them") if len(missing) > 1 else ("which is", "it")
        raise UnusableDatabase(
            f"the registry was sealed with {_keys(missing)}, {are} not among those given "
            f"({', '.join(vault.key_ids)}); put {them} back (OUTRIDER_SEAL_KEY, or the key file in the data folder)"
        )


def _opens(connection: sqlite3.Connection, vault: Vault, key_id: str) -> bool:
    (mark,) = connection.execute("select mark from seals where key_id = ?", (key_id,)).fetchone()
    try:
        return vault.unseal("seals.mark", key_id, mark) == MARK
    except Unsealable:
        return False


def check(connection: sqlite3.Connection, vault: Vault, now: int) -> None:
    """Refuse a registry whose keys are not all there, and note the key that seals from now on."""
    require_keys(connection, vault)
    connection.execute(
        "insert into seals values (?, ?, ?) on conflict do nothing",
        (vault.key_id, vault.seal("seals.mark", vault.key_id, MARK), now),
    )


def reseal(connection: sqlite3.Connection, vault: Vault, *, plain: bool = False) -> Iterator[int]:
    """Bring every cell under the key that seals now; yields after each batch how many rows it changed.

    The caller commits after each. With `plain`, text that was never sealed is sealed too: the way out of a file that
    was written before there was sealing, and no other's.
    """
    for table, (row, columns) in SEALED.items():
        by_rowid = _has_rowid(connection, table)
        if by_rowid is None:
            continue
        columns = _there(connection, table, columns)
        last = 0 if by_rowid else ("",) * len(row)
        while rows := _next_rows(connection, table, row, columns, last):
            last = rows[-1][0] if by_rowid else tuple(rows[-1][1 : 1 + len(row)])
            yield sum(_resealed(connection, vault, table, row, columns, each, plain) for each in rows)


def _has_rowid(connection: sqlite3.Connection, table: str) -> bool | None:
    """None for a table that a later migration brings."""
    found = connection.execute("select wr from pragma_table_list where name = ?", (table,)).fetchone()
    return None if found is None else not found[0]


def _there(connection: sqlite3.Connection, table: str, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Those of these columns that no later migration brings."""
    found = {name for (name,) in connection.execute("select name from pragma_table_info(?)", (table,))}
    return tuple(column for column in columns if column in found)


def _next_rows(
    connection: sqlite3.Connection, table: str, row: tuple[str, ...], columns: tuple[str, ...], last: object
) -> list[tuple]:
    """The next batch of a table: its rowid (or null), the columns that name the row, and the cells."""
    chosen = ", ".join((*row, *columns))
    cursor = connection.cursor()
    cursor.row_factory = None
    if isinstance(last, int):
        sql = f"select rowid, {chosen} from {table} where rowid > ? order by rowid limit {BATCH}"
        return cursor.execute(sql, (last,)).fetchall()
    names = ", ".join(row)
    marks = ", ".join("?" * len(row))
    sql = f"select null, {chosen} from {table} where ({names}) > ({marks}) order by {names} limit {BATCH}"
    return cursor.execute(sql, last).fetchall()  # type: ignore[arg-type]


def _resealed(
    connection: sqlite3.Connection,
    vault: Vault,
    table: str,
    row: tuple[str, ...],
    columns: tuple[str, ...],
    values: tuple,
    plain: bool,
) -> bool:
    named = values[1 : 1 + len(row)]
    place = "/".join(map(str, named))
    fresh: dict[str, bytes] = {}
    for column, cell in zip(columns, values[1 + len(row) :], strict=True):
        if cell is None or (isinstance(cell, bytes) and sealed_by(cell) == vault.key_id):
            continue
        text = cell if plain and isinstance(cell, str) else vault.unseal(f"{table}.{column}", place, cell)
        fresh[column] = vault.seal(f"{table}.{column}", place, text)
    if fresh:
        sets = ", ".join(f"{column} = ?" for column in fresh)
        rowid = values[0]  # what names a row to its seals has no index of its own in every table
        where = " and ".join(f"{name} = ?" for name in row) if rowid is None else "rowid = ?"
        found = named if rowid is None else (rowid,)
        connection.execute(f"update {table} set {sets} where {where}", (*fresh.values(), *found))
    return bool(fresh)


def forget_keys(connection: sqlite3.Connection, vault: Vault) -> None:
    """After all cells were brought over: only the key that seals is needed from now on."""
    connection.execute("delete from seals where key_id <> ?", (vault.key_id,))


# -- changing what is sealed


class Cells(Protocol):
    """What `rewrite` needs of a transaction."""

    def q(self, sql: str, **params: Any) -> list[sqlite3.Row]: ...

    def x(self, sql: str, **params: Any) -> int: ...

    @property
    def seal(self) -> Callable[[str, str, str], bytes]: ...

    @property
    def unseal(self) -> Callable[[str, str, bytes], str]: ...


def rewrite(
    tx: Cells, table: str, where: str, change: Callable[[str], str | None], columns: Iterable[str] = (), **params: Any
) -> None:
    """Change the texts in a table's sealed cells, of the rows that `where` names; None takes a cell away.

    `columns` narrows to some of the sealed ones. Only cells whose text changes are sealed anew.
    """
    names, every = SEALED[table]
    columns = tuple(columns) or every
    for row in tx.q(f"select {', '.join((*names, *columns))} from {table} where {where}", **params):
        named = {f"name_{name}": row[name] for name in names}
        place = "/".join(str(value) for value in named.values())
        fresh: dict[str, bytes | None] = {}
        for column in (column for column in columns if row[column] is not None):
            text = tx.unseal(f"{table}.{column}", place, row[column])
            changed = change(text)
            if changed != text:
                fresh[column] = None if changed is None else tx.seal(f"{table}.{column}", place, changed)
        if fresh:
            sets = ", ".join(f"{column} = :{column}" for column in fresh)
            own = " and ".join(f"{name} = :name_{name}" for name in names)
            tx.x(f"update {table} set {sets} where {own}", **fresh, **named)
