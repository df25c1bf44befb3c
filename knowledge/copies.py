"""Copies of the store's file: all of it at one moment, while others write. It knows no document."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw

from knowledge.backend import StoreFailed
from knowledge.connection import BUSY_MS, VERSION

NEWEST = VERSION  # the schema of this version


class Copier:
    """Reads the file as it was when it looked. Others may write meanwhile."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def look(self) -> None:
        """From now on it is this moment's."""
        self._connection.execute("begin; select count(*) from sqlite_master").fetchall()

    def copy(self, to: Path) -> None:
        """The moment's copy, whole in one file. Raises StoreFailed where what is copied is damaged."""
        with closing(apsw.Connection(str(to))) as made:
            with made.backup("main", self._connection, "main") as backup:
                backup.step()
            made.pragma("journal_mode", "delete")  # one file, with no log beside it
            verdict = made.pragma("quick_check", 1)
        if verdict != "ok":
            raise StoreFailed(f"the knowledge store is damaged: {verdict}")


@contextmanager
def reading(path: Path) -> Iterator[Copier]:
    """A copier of the file. Raises StoreFailed."""
    with _told(), closing(_open(path)) as connection:
        yield Copier(connection)


def version(path: Path) -> int:
    """The schema that a store's file has. Raises StoreFailed."""
    with _told(), closing(_open(path)) as connection:
        return connection.pragma("user_version")


def _open(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(BUSY_MS)
    return connection


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except apsw.Error as fault:
        raise StoreFailed(f"the knowledge store cannot be read: {fault}") from fault
