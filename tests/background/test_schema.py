"""The schema: one map that equals its migrations, and invariants that hold whatever the code above does."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from background.migrating import MIGRATIONS, migrate

SCHEMA = MIGRATIONS.parent / "schema.sql"


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A migrated file with one session, one task at work, one job and its batch."""
    with closing(sqlite3.connect(tmp_path / "rows.db", isolation_level=None)) as connection:
        migrate(connection, 1)
        connection.execute("pragma foreign_keys = on")
        connection.executescript(
            """
            insert into sessions (uid, owner, id, kind, created_at, updated_at) values ('u', 'local', 's', 'chat', 1, 1);
            insert into tasks (id, owner, session, profile, origin, state, created_at)
                values ('t', 'local', 'u', 'chat', 'user', 'working', 1);
            insert into batches (id, owner, session, created_at) values ('b', 'local', 'u', 1);
            insert into jobs (id, owner, session, batch_id, key, fingerprint, subagent_type, description, prompt, tools,
                status, created_at) values ('j', 'local', 'u', 'b', 'k', 'f', 'general', 'd', 'p', '[]', 'queued', 1);
            insert into runs (kind, key, lane, task_id, state, due_at, created_at)
                values ('turn', 'turn:t', 'session:u', 't', 'queued', 1, 1);
            """
        )
        yield connection


def shape(script: str) -> dict[str, str]:
    """Everything that a script creates, with its text as SQLite keeps it, without remarks."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(re.sub(r"--[^\n]*", "", script))
        found = connection.execute("select name, sql from sqlite_master where sql is not null").fetchall()
    return told(found)


def told(found: list[tuple[str, str]]) -> dict[str, str]:
    """Each with its text on one line; a table that was renamed has its name in quotes, and is the same."""
    lines = {name: re.sub(r"\s*([(),])\s*", r"\1 ", " ".join(sql.split())) for name, sql in found}  # however it was set
    plain = {name: re.sub(rf'^(CREATE TABLE) "{name}"', rf"\1 {name}", sql) for name, sql in lines.items()}
    return {name: sql for name, sql in plain.items() if not name.startswith("sqlite_")}


def test_the_schema_equals_the_migrations_replayed(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "replayed.db", isolation_level=None)) as replayed:
        migrate(replayed, 1)
        found = replayed.execute("select name, sql from sqlite_master where sql is not null").fetchall()
    written = shape(SCHEMA.read_text())
    assert told(found) == written
    assert len(written) > 20


def test_migrations_are_numbered_without_a_gap() -> None:
    numbers = [int(file.name[:4]) for file in sorted(MIGRATIONS.glob("*.sql"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_header_is_a_map_that_names_every_table() -> None:
    text = SCHEMA.read_text()
    header = "\n".join(line for line in text[: text.index("\n\n")].splitlines() if line.startswith("--"))
    tables = set(re.findall(r"^create table (\w+)", text, re.MULTILINE)) - {"migrations"}
    assert {table for table in tables if not re.search(rf"\b{table}\b", header)} == set()


def test_every_foreign_key_is_checked_at_its_statement(rows: sqlite3.Connection) -> None:
    """A deferred one would fail a whole shared commit."""
    assert "deferr" not in SCHEMA.read_text().lower()
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        rows.execute("insert into results values ('no such task', x'00', 0, null, 1)")


REFUSED = {
    "an end without a time (task)": "update tasks set state = 'completed'",
    "a time without an end (task)": "update tasks set ended_at = 1",
    "an end without a time (run)": "update runs set state = 'done'",
    "an end without a time (job)": "update jobs set status = 'failed'",
    "an unknown state (task)": "update tasks set state = 'parked'",
    "an end without a time (parked task)": "update tasks set state = 'input_required', ended_at = 1",
    "an unknown ceiling": "update tasks set ceiling = 'half'",
    "an unknown state (run)": "update runs set state = 'lost'",
    "an unknown state (job)": "update jobs set status = 'gone'",
    "an unknown kind of run": "update runs set kind = 'whatever'",
    "a reason without a failure (task)": "update tasks set state = 'completed', ended_at = 1, reason = 'STALLED'",
    "a reason without a failure (job)": "update jobs set reason = 'STALLED'",
    "a canceler without a cancel": "update jobs set canceled_by = 'user'",
    "a canceler that is nobody": "update jobs set status = 'canceled', completed_at = 1, canceled_by = 'x'",
    "a run at work without a lease": "update runs set state = 'running', worker = 'w'",
    "a run at work that nobody holds": "update runs set state = 'running', lease_until = 1",
    "a parked run that is held": "update runs set state = 'parked', worker = 'w'",
    "a second head of a lane beside a parked run": "update runs set state = 'parked'; insert into runs "
    "(kind, key, lane, state, due_at, created_at) values ('turn', 'twin', 'session:u', 'queued', 1, 1)",
    "a parked run's second open run": "update runs set state = 'parked'; insert into runs "
    "(kind, key, task_id, state, due_at, created_at) values ('turn', 'twin', 't', 'queued', 1, 1)",
    "a second open question of a task": "insert into questions values ('t', 3, 'form', 'k', 'd', x'00', 1, 1, null, null), "
    "('t', 4, 'form', 'l', 'd', x'00', 1, 1, null, null)",
    "an unknown kind of question": "insert into questions values ('t', 3, 'riddle', 'k', 'd', x'00', 1, 1, null, null)",
    "a lease on a run that waits": "update runs set lease_until = 1",
    "a task's second open run": "insert into runs (kind, key, task_id, state, due_at, created_at) "
    "values ('turn', 'twin', 't', 'queued', 1, 1)",
    "a second head of a lane": "insert into runs (kind, key, lane, state, due_at, created_at) "
    "values ('turn', 'twin', 'session:u', 'queued', 1, 1)",
    "a key taken twice (run)": "insert into runs (kind, key, state, due_at, created_at) "
    "values ('nudge', 'turn:t', 'queued', 1, 1)",
    "an owner's session id taken twice": "insert into sessions (uid, owner, id, kind, created_at, updated_at) "
    "values ('v', 'local', 's', 'chat', 1, 1)",
    "a delivery that is attached to nothing": "insert into deliveries (job_id, attempt, session, state, ended_at) "
    "values ('j', 1, 'u', 'attached', 1)",
    "a delivery delivered at no time": "insert into deliveries (job_id, attempt, session, state, task_id, ended_at) "
    "values ('j', 1, 'u', 'delivered', 't', 1)",
    "a message without a speaker": "insert into messages (uid, session, role, kind, created_at) "
    "values ('m', 'u', 'system', 'user', 1)",
    "a second result": "insert into results values ('t', x'00', 0, null, 1), ('t', x'00', 0, null, 2)",
    "a message id taken twice": "insert into receipts values ('local', 'm', 'f', 't'), ('local', 'm', 'g', 't')",
    "a caller's key taken twice (job)": "insert into jobs (id, owner, session, batch_id, key, fingerprint, subagent_type, "
    "description, prompt, tools, status, created_at) values ('i', 'local', 'u', 'b', 'k', 'f', 'g', 'd', 'p', '[]', 'queued', 1)",
}


@pytest.mark.parametrize("statement", REFUSED.values(), ids=REFUSED)
def test_the_schema_refuses(rows: sqlite3.Connection, statement: str) -> None:
    *before, refused = statement.split("; ")
    for allowed in before:
        rows.execute(allowed)
    with pytest.raises(sqlite3.IntegrityError, match="constraint failed"):
        rows.execute(refused)


def test_the_schema_takes_what_may_be(rows: sqlite3.Connection) -> None:
    """What the refusals above are near misses of."""
    rows.executescript(
        """
        insert into questions values ('t', 3, 'form', 'k', 'd', x'00', 1, 1, null, 2), ('t', 4, 'form', 'l', 'd', x'00', 1, 1, null, null);
        update tasks set state = 'input_required';
        update runs set state = 'parked';
        update runs set state = 'running', worker = 'w', leased_at = 1, lease_until = 2;
        update runs set state = 'done', worker = null, lease_until = null, ended_at = 3;
        update tasks set state = 'failed', reason = 'STALLED', ended_at = 3;
        update jobs set status = 'canceled', canceled_by = 'user', completed_at = 3;
        insert into runs (kind, key, lane, task_id, state, due_at, created_at)
            values ('turn', 'twin', 'session:u', 't', 'queued', 4, 4), ('turn', 'next', 'session:u', null, 'waiting', 4, 4);
        insert into deliveries values ('j', 1, 'u', 'delivered', 't', 0, 0, null, 4, 5, 3, null, null);
        """
    )
    assert rows.execute("pragma foreign_key_check").fetchall() == []
