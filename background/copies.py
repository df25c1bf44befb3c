"""Copies of a registry's file: all of it at one moment, while others write; and what a file says of itself.

It reads a file whole and knows no row but those by which a file is told: its version, and the keys that sealed it.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from background import sealing
from background.connections import BUSY_TIMEOUT_MS
from background.errors import StorageUnavailable, UnusableDatabase
from background.migrating import MIGRATIONS
from background.sealing import Vault

NEWEST = max(int(file.name.split("_")[0]) for file in MIGRATIONS.glob("[0-9]*.sql"))  # the schema of this version


class Copier:
    """Reads the file as it was when it looked. Others may write meanwhile."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def look(self) -> None:
        """From now on it is this moment's."""
        self._connection.execute("begin")
        self._connection.execute("select count(*) from sqlite_master").fetchall()

    def copy(self, to: Path) -> None:
        """The moment's copy, whole in one file. Raises `UnusableDatabase` where what is copied is damaged."""
        with closing(sqlite3.connect(to, isolation_level=None)) as made:
            self._connection.backup(made)
            made.execute("pragma journal_mode=delete").fetchall()  # one file, with no log beside it
            (verdict,) = made.execute("pragma quick_check(1)").fetchone()
        if verdict != "ok":
            raise UnusableDatabase(f"the registry is damaged: {verdict}")


@contextmanager
def reading(path: Path) -> Iterator[Copier]:
    """A copier of the file. Raises `StorageUnavailable`, `UnusableDatabase`."""
    with _told(path), closing(_open(path)) as connection:
        yield Copier(connection)


@contextmanager
def standing_still(path: Path) -> Iterator[None]:
    """Nobody writes the registry meanwhile; whoever wants to waits. Raises `StorageUnavailable` where one goes on for too long."""
    with _told(path), closing(_open(path)) as connection:
        connection.execute("begin immediate")
        yield
        connection.execute("rollback")


def version(path: Path) -> int:
    """The schema that a registry's file has. Raises `UnusableDatabase` for one that is no registry."""
    with _told(path), closing(_open(path)) as connection:
        return connection.execute("select max(number) from migrations").fetchone()[0]


def require_keys(path: Path, vault: Vault) -> None:
    """Raises `UnusableDatabase` where a key that sealed the registry is not the vault's."""
    with _told(path), closing(_open(path)) as connection:
        sealing.require_keys(connection, vault)


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"pragma busy_timeout={BUSY_TIMEOUT_MS}")
    return connection


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StorageUnavailable(f"{path} cannot be read: {error}") from error
    except sqlite3.DatabaseError as error:
        raise UnusableDatabase(f"{path} is damaged, or no registry ({error})") from error
