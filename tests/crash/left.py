"""The files that a dead server leaves, opened for those who look whether its promises hold."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from background.migrating import KEY_FILE
from background.sealing import Vault, key_file

Broken = Iterator[str]


@dataclass
class Left:
    """The files of a dead server."""

    registry: sqlite3.Connection
    knowledge: sqlite3.Connection
    vault: Vault
    folder: Path

    @classmethod
    @contextmanager
    def open(cls, data: Path) -> Iterator["Left"]:
        registry, knowledge = (_opened(data / name) for name in ("outrider.db", "knowledge.db"))
        with closing(registry), closing(knowledge):
            yield cls(registry, knowledge, key_file(data / KEY_FILE), data)

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        return self.registry.execute(sql, values).fetchall()

    def pairs(self, sql: str, *values: Any) -> dict[Any, Any]:
        """Two columns as a dict."""
        return dict(map(tuple, self.rows(sql, *values)))

    def descriptions(self) -> dict[str, str]:
        """What the jobs are called, by id."""
        cells = self.pairs("select id, description from jobs")
        return {job_id: self.vault.unseal("jobs.description", job_id, cell) for job_id, cell in cells.items()}

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """What the console heard: names and data."""
        rows = self.rows("select * from events order by id")
        opened = [self.vault.unseal("events.data", f"{row['session']}/{row['uid']}", row["data"]) for row in rows]
        return [(row["name"], json.loads(data)) for row, data in zip(rows, opened, strict=True)]

    def turn_of(self, message_id: str) -> str:
        """The task that a user's message made."""
        return self.pairs("select message_id, task_id from receipts")[message_id]

    def holding(self, name: str, *texts: str) -> Broken:
        """Which of the texts stand in a file of this name, or in one of those beside it."""
        for path in self.folder.glob(f"{name}*"):
            held = path.read_bytes()
            yield from (f"{path.name} holds {text!r}" for text in texts if text.encode() in held)


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    return connection


def differ(what: str, found: Any, expected: Any) -> Broken:
    """A line where these are not the same."""
    if found != expected:
        yield f"{what} are {found} and should be {expected}"
