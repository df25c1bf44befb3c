"""What a transaction costs does not grow with what is stored: none of the product's statements walks through a table."""

import random
import re
import sqlite3
import sys
from collections import defaultdict
from contextlib import closing
from typing import Any

import pytest

from background.database import Database, Tx
from tests.background.story import story
from tests.background.walk import Walk
from tests.support.clock import Clock

FEW = {"workers", "seals", "migrations"}  # tables of a few rows
A_WALK = re.compile(r"(?:SCAN|SEARCH) (\w+)$")  # by no index, and by no key
NO_TABLE = re.compile(r"SCAN (\w+) VIRTUAL TABLE|SCAN CONSTANT ROW|SCAN \(")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Every statement that `background` gives to a transaction from now on."""
    heard: set[str] = set()

    def listening(name: str) -> None:
        plain = getattr(Tx, name)

        def heard_by(tx: Tx, sql: str, **params: Any) -> Any:
            if sys._getframe(1).f_globals["__name__"].startswith("background."):
                heard.add(sql)
            return plain(tx, sql, **params)

        monkeypatch.setattr(Tx, name, heard_by)

    for name in ("q", "one", "x"):
        listening(name)
    return heard


def walks(connection: sqlite3.Connection, sql: str) -> set[str]:
    """The tables, as the statement calls them, that it walks through."""
    plan = [row[3] for row in connection.execute(f"explain query plan {sql}", defaultdict(lambda: "1"))]
    return {found[1] for step in plan if (found := A_WALK.match(step)) and not NO_TABLE.match(step)} - FEW


@story
async def test_no_statement_walks_through_a_table(db: Database, clock: Clock, said: set[str]) -> None:
    """The lane's next run was once looked for among all runs that ever were, at each end of a turn."""
    walk = Walk((db, db), clock, random.Random(7))
    for _ in range(400):
        await walk.step()
    await walk.rest()
    with closing(sqlite3.connect(db.path)) as connection:
        assert walks(connection, "select * from tasks where reason = 'TIMED_OUT'") == {"tasks"}
        found = {sql: tables for sql in said if (tables := walks(connection, sql))}
    assert len(said) > 80 and not found
