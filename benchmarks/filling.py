"""A registry that was used for long: ended turns, each with a delivered job, in sessions of 50.

The rows are made by SQL, in the shape that the product writes, sealed with the key of the folder.
"""

import itertools
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from background import sealing
from background.migrating import KEY_FILE

PER_SESSION = 50
LEAST_SESSIONS = 20
TEXT = "A sentence of some fifty characters, more or less."
STATES = ("submitted", "working", "completed")  # by revision
OWNER = "local"
MILLISECOND = 1_000  # microseconds

Row = dict[str, Any]


def fill(path: Path, count: int, began: int = 0) -> None:
    """`count` ended turns and as many delivered jobs, with all the rows that belong to them, into an empty registry.

    The first was at `began` (microseconds), each other a millisecond later. What is old, a server that runs purges.
    """
    past = _Past(sealing.key_file(path.with_name(KEY_FILE), make=False), began)
    sessions = max(LEAST_SESSIONS, count // PER_SESSION)
    with closing(sqlite3.connect(path)) as db:
        db.executescript("pragma synchronous=off; begin;")
        _insert(db, "sessions", map(past.session, range(sessions)))
        for table, row in past.rows_of_a_turn().items():
            _insert(db, table, map(row, range(count)))
        for table in ("revisions", "journal"):
            steps = itertools.product(range(count), enumerate(STATES, start=1))
            _insert(db, table, (past.step(table, number, *step) for number, step in steps))
        db.commit()


def _insert(db: sqlite3.Connection, table: str, rows: Iterator[Row]) -> None:
    first = next(rows)
    values = ", ".join(f":{name}" for name in first)
    db.executemany(f"insert into {table} ({', '.join(first)}) values ({values})", itertools.chain([first], rows))


class _Past:
    """Rows, by the number of the turn that they belong to; all of a turn happened at one time."""

    def __init__(self, vault: sealing.Vault, began: int) -> None:
        self._seal = vault.seal
        self._began = began

    def _at(self, n: int) -> int:
        return self._began + n * MILLISECOND

    def rows_of_a_turn(self) -> dict[str, Callable[[int], Row]]:
        """The tables in which each turn has one row, parents first."""
        return {
            "tasks": self._task,
            "receipts": self._receipt,
            "results": self._result,
            "views": self._view,
            "runs": self._run,
            "messages": self._message,
            "batches": self._batch,
            "jobs": self._job,
            "members": self._member,
            "deliveries": self._delivery,
        }

    def session(self, number: int) -> Row:
        uid = f"u{number}"
        title = self._seal("sessions.title", uid, TEXT)
        times = {"created_at": self._at(number), "updated_at": self._at(number)}
        return {"uid": uid, "owner": OWNER, "id": f"s{number}", "kind": "chat", "title": title, **times}

    def step(self, table: str, n: int, revision: int, state: str) -> Row:
        """A change of the turn's, and what was told of it."""
        more = {"projected": 1} if table == "revisions" else {"number": 0}
        return {"task_id": f"t{n}", "revision": revision, "kind": "status", "state": state, "at": self._at(n), **more}

    def _task(self, n: int) -> Row:
        what = {"profile": "chat", "origin": "user", "state": "completed", "revision": len(STATES)}
        times = {"created_at": self._at(n), "started_at": self._at(n), "ended_at": self._at(n)}
        return {"id": f"t{n}", "owner": OWNER, "session": _session(n), **what, **times}

    def _receipt(self, n: int) -> Row:
        return {"owner": OWNER, "message_id": f"m{n}", "fingerprint": "f", "task_id": f"t{n}"}

    def _result(self, n: int) -> Row:
        made = json.dumps([{"artifactId": f"t{n}-1", "parts": [{"text": TEXT}]}])
        artifacts = self._seal("results.artifacts", f"t{n}", made)
        return {"task_id": f"t{n}", "artifacts": artifacts, "pieces": 1, "created_at": self._at(n)}

    def _view(self, n: int) -> Row:
        what = {"revision": len(STATES), "state": "completed", "at": self._at(n)}
        return {"task_id": f"t{n}", "owner": OWNER, "session": _session(n), **what}

    def _run(self, n: int) -> Row:
        which = {"kind": "turn", "key": f"turn:t{n}", "lane": f"session:{_session(n)}", "task_id": f"t{n}"}
        return {
            **which,
            "state": "done",
            "attempt": 1,
            "due_at": self._at(n),
            "created_at": self._at(n),
            "ended_at": self._at(n),
        }

    def _message(self, n: int) -> Row:
        said = json.dumps({"messageId": f"m{n}", "role": "ROLE_USER", "parts": [{"text": TEXT}]})
        sealed = {
            name: self._seal(f"messages.{name}", f"{_session(n)}/m{n}", text)
            for name, text in {"text": TEXT, "content": said}.items()
        }
        what = {"role": "user", "kind": "user", **sealed, "chars": len(TEXT), "created_at": self._at(n)}
        return {"uid": f"m{n}", "session": _session(n), "task_id": f"t{n}", **what}

    def _batch(self, n: int) -> Row:
        times = {"closed_at": self._at(n), "created_at": self._at(n)}
        return {"id": f"t{n}", "owner": OWNER, "session": _session(n), "generation": 1, **times}

    def _job(self, n: int) -> Row:
        which = {"id": _job_id(n), "owner": OWNER, "session": _session(n), "batch_id": f"t{n}", "task_id": f"t{n}"}
        what = {"key": f"k{n}", "fingerprint": "f", "subagent_type": "general", "tools": "[]", "status": "completed"}
        texts = {name: self._seal(f"jobs.{name}", _job_id(n), TEXT) for name in ("description", "prompt")}
        return {
            **which,
            **what,
            **texts,
            "created_at": self._at(n),
            "started_at": self._at(n),
            "completed_at": self._at(n),
        }

    def _member(self, n: int) -> Row:
        return {"batch_id": f"t{n}", "job_id": _job_id(n), "attempt": 1, "status": "completed", "generation": 1}

    def _delivery(self, n: int) -> Row:
        times = {"ready_at": self._at(n), "notified_at": self._at(n), "ended_at": self._at(n)}
        which = {"job_id": _job_id(n), "attempt": 1, "session": _session(n), "task_id": f"t{n}"}
        return {**which, "state": "delivered", **times}


def _session(n: int) -> str:
    return f"u{n // PER_SESSION}"


def _job_id(n: int) -> str:
    return f"bg-{n:012x}"
