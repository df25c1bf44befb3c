"""Connections to the registry's file: how each is opened, how one is alone with it, and what a transaction is on one.

Knows SQLite and no table.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from background.errors import StorageUnavailable, UnusableDatabase

BUSY_TIMEOUT_MS = 5000


class Held(sqlite3.OperationalError):
    """Another process has been writing for longer than the busy timeout; nothing has begun."""


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    """All or nothing of what is done inside. Raises `Held`, and whatever is raised inside."""
    try:
        connection.execute(begin)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            raise Held(str(error)) from error
        raise
    try:
        yield
        connection.execute("commit")  # fails where the transaction is gone: what was in it is not kept
    finally:
        if connection.in_transaction:
            connection.execute("rollback")


def open_file(path: Path, *pragmas: str) -> sqlite3.Connection:
    """A connection that begins nothing by itself, with the settings that all of them have, and these pragmas."""
    with ExitStack() as unless_all_is_well:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)
        # Not some time later: closing takes a log away, which may be another's by then.
        unless_all_is_well.callback(connection.close)
        _prepare(connection, pragmas)
        unless_all_is_well.pop_all()
    return connection


def _prepare(connection: sqlite3.Connection, pragmas: tuple[str, ...]) -> None:
    connection.execute(f"pragma busy_timeout={BUSY_TIMEOUT_MS}")  # before anything that could find the file locked
    # Savepoints keep their way back in temporary storage; a file of its own would be made and deleted for each commit.
    # What is deleted is overwritten: by default in some builds of SQLite alone.
    settings = ("synchronous=full", "foreign_keys=on", "temp_store=memory", "secure_delete=on")
    for pragma in (*(f"pragma {setting}" for setting in settings), *pragmas):
        connection.execute(pragma)
    connection.row_factory = sqlite3.Row


def require_unused(path: Path) -> None:
    """Raises `StorageUnavailable` while a server or worker has the registry open. A damaged one is nobody's."""
    with suppress(UnusableDatabase):
        if _is_database(path):  # else SQLite would take its log away, which may be all that can be saved
            open_alone(path).close()


def _is_database(path: Path) -> bool:
    """Whether the file itself is one, whatever stands in its log: that is neither read nor touched."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as connection:
        try:
            connection.execute("pragma schema_version").fetchone()
        except sqlite3.DatabaseError:
            return False
    return True


def open_alone(path: Path) -> sqlite3.Connection:
    """A connection that nobody else has one beside. Raises `StorageUnavailable` where somebody has, `UnusableDatabase`."""
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(closing(open_file(path)))
            connection.execute("pragma locking_mode=exclusive")
            with transaction(connection, "begin exclusive"):
                pass
            stack.pop_all()
            return connection
        except sqlite3.OperationalError as error:
            raise StorageUnavailable(f"{path} is in use: stop its server and its workers first") from error
        except sqlite3.DatabaseError as error:
            raise UnusableDatabase(f"{path} is damaged, or no database of ours ({error})") from error
