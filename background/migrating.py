"""Bringing the registry's whole file over: made ready at a start, migrated, put under another key.

A file that does not fit is refused before anything of it is changed. It knows no table but `migrations`.
"""

import fcntl
import os
import re
import sqlite3
from collections import deque
from contextlib import closing
from pathlib import Path

from background import connections, sealing
from background.errors import NewerDatabase, StorageUnavailable, UnusableDatabase
from background.sealing import Vault

MIGRATIONS = Path(__file__).parent / "migrations"
SEALED_SINCE = 2  # the migration that brought sealing
PLAIN_LEFT = 1  # the file's user_version while its free pages may hold what was written before
INCREMENTAL = 2  # what `pragma auto_vacuum` calls it
KEY_FILE = "seal.keys"
UNFINISHED = "restore.unfinished"  # lies beside a registry while a backup takes its place


def prepare(path: Path, vault: Vault | None, now: int) -> Vault:
    """Switch to WAL and migrate, under a lock file: the switch itself does not heed the busy timeout.

    Returns what seals: the vault given, or that of the key file beside it. Nothing is changed before it is known to fit.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.with_suffix(".lock").open("w") as lock:
        os.fchmod(lock.fileno(), 0o600)  # who could open it could hold every start up
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.with_name(UNFINISHED).exists():
            raise UnusableDatabase(f"a restore of {path} was cut off; run it again: outrider restore --force FILE")
        path.touch(mode=0o600)
        try:
            with closing(connections.open_file(path)) as connection:
                wanted = sealing.sealed_with(connection)
                vault = vault or sealing.key_file(path.with_name(KEY_FILE), make=not wanted, wanted=wanted)
                sealing.require_keys(connection, vault)
                if connection.execute("pragma auto_vacuum").fetchone()[0] != INCREMENTAL:  # saying it again would write
                    connection.execute("pragma auto_vacuum=incremental")  # an old file turns to it by a vacuum
                connection.execute("pragma journal_mode=wal")
                migrate(connection, now, vault=vault)
                with connections.transaction(connection, "begin immediate"):
                    sealing.check(connection, vault, now)
                return vault
        except sqlite3.OperationalError as error:
            raise StorageUnavailable(f"{path} cannot be opened: {error}") from error
        except sqlite3.DatabaseError as error:
            raise UnusableDatabase(
                f"{path} is damaged, or no database of ours ({error}); restore it from a backup"
            ) from error


def reseal(path: Path, vault: Vault, now: int) -> int:
    """Bring every cell of a registry that nobody has open under the vault's first key. Returns how many rows it changed.

    Killed in between, it goes on where it was when it is run again; until it is through, the old keys are needed.
    Raises `StorageUnavailable` while a server or worker has the registry open, and `UnusableDatabase`.
    """
    with closing(connections.open_alone(path)) as connection:
        with connections.transaction(connection, "begin immediate"):
            sealing.check(connection, vault, now)
        changed = 0
        batches = sealing.reseal(connection, vault)
        while True:
            with connections.transaction(connection, "begin immediate"):
                rows = next(batches, None)
            if rows is None:
                break
            changed += rows
        with connections.transaction(connection, "begin immediate"):
            sealing.forget_keys(connection, vault)
        connection.execute("vacuum")  # nothing that the old key opens is left in a free page
        connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        return changed


def migrate(connection: sqlite3.Connection, now: int, folder: Path = MIGRATIONS, vault: Vault | None = None) -> None:
    """Bring the file up to this version, a numbered migration a transaction. Raises `NewerDatabase`.

    What was written before there was sealing is sealed by `vault` in the migration that brings sealing.
    """
    files = {int(file.name.split("_")[0]): file for file in sorted(folder.glob("[0-9]*.sql"))}
    known = connection.execute("select 1 from sqlite_master where name = 'migrations'").fetchone()
    done = connection.execute("select max(number) from migrations").fetchone()[0] if known else 0
    if done > max(files):
        raise NewerDatabase(
            f"the data folder was written by a newer version (schema {done}; this one knows {max(files)})"
        )
    connection.execute("pragma foreign_keys=off")  # a table that is made anew must not take its children along
    for number in sorted(set(files) - set(range(done + 1))):
        with connections.transaction(connection, "begin immediate"):
            for statement in _statements(files[number].read_text()):
                connection.execute(statement)
            if number == SEALED_SINCE and vault is not None:
                deque(sealing.reseal(connection, vault, plain=True), maxlen=0)
                connection.execute(f"pragma user_version={PLAIN_LEFT if done else 0}")
            connection.execute("insert into migrations values (?, ?, ?)", (number, files[number].stem, now))
    connection.execute("pragma foreign_keys=on")
    if connection.execute("pragma user_version").fetchone()[0] == PLAIN_LEFT:  # now, or by one that was cut off here
        connection.execute("vacuum")
        connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        connection.execute("pragma user_version=0")


def _statements(script: str) -> list[str]:
    """A script's statements; `executescript` would commit the transaction that they belong to."""
    bare = re.sub(r"--[^\n]*", "", script)
    return [statement for statement in bare.split(";") if statement.strip()]
