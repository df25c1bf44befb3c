"""Another key: all cells are brought under it, it may be cut off anywhere, and at the end nothing needs the old one."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from background import connections, events, migrating, sealing
from background.database import Database, Tx
from background.errors import StorageUnavailable, Unsealable, UnusableDatabase
from background.sealing import SEALED, Vault
from tests.background.factories import OWNER, running
from tests.background.story import everything, story
from tests.background.talk import talkative
from tests.support.clock import Clock

OLD, NEW = b"o" * 32, b"n" * 32


def _opened_cells(path: Path, vault: Vault) -> dict[tuple[str, ...], str]:
    """Every cell of a registry, opened; by table, column and row."""
    found: dict[tuple[str, ...], str] = {}
    with closing(sqlite3.connect(path)) as stranger:
        for table, (row, columns) in SEALED.items():
            for values in stranger.execute(f"select {', '.join((*row, *columns))} from {table}"):
                place = "/".join(map(str, values[: len(row)]))
                for column, cell in zip(columns, values[len(row) :], strict=True):
                    if cell is not None:
                        found[table, column, place] = vault.unseal(f"{table}.{column}", place, cell)
    return found


def _sealers(path: Path) -> set[str]:
    """The keys that any cell of the registry is sealed with."""
    with closing(sqlite3.connect(path)) as stranger:
        return {
            sealing.sealed_by(cell)
            for table, (_, columns) in SEALED.items()
            for column in columns
            for (cell,) in stranger.execute(f"select {column} from {table} where {column} is not null")
        }


@story
async def test_rotation_may_be_cut_at_any_batch_and_everything_is_readable_at_each(
    db: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "BATCH", 3)
    await talkative(db)
    await db.close()
    (old,) = sealing.key_file(db.path.with_name(migrating.KEY_FILE)).keys
    both, before = Vault([NEW, old]), _opened_cells(db.path, Vault([old]))
    cuts = 0
    real = sealing._next_rows
    while True:
        left = 1 + cuts

        def cut_off(*args: object) -> list[tuple]:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return real(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(sealing, "_next_rows", cut_off)
        try:
            migrating.reseal(db.path, both, clock())
        except KeyboardInterrupt:
            cuts += 1
            assert _opened_cells(db.path, both) == before
            assert both.key_id in {row[0] for row in everything(db.path)["seals"]}
        else:
            break
    assert cuts > 12
    assert _opened_cells(db.path, Vault([NEW])) == before
    assert _sealers(db.path) == {both.key_id}
    renewed = await Database(db.path, clock, vault=Vault([NEW])).open()
    await renewed.close()
    with pytest.raises(UnusableDatabase, match=f"sealed with key {both.key_id}"):
        await Database(db.path, clock, vault=Vault([old])).open()


@story
async def test_rotation_of_what_is_under_the_key_already_changes_nothing(db: Database, clock: Clock) -> None:
    await talkative(db)
    await db.close()
    before = everything(db.path)
    vault = sealing.key_file(db.path.with_name(migrating.KEY_FILE))
    assert migrating.reseal(db.path, vault, clock()) == 0
    assert everything(db.path) == before


@story
async def test_rotation_reads_no_cell_that_was_never_sealed(db: Database, clock: Clock) -> None:
    """Whoever can write into the file must not get a text of his own sealed as somebody's words."""
    turn = await running(db)
    await db.write(Tx.x, "update messages set text = 'I never said so'")
    await db.close()
    (old,) = sealing.key_file(db.path.with_name(migrating.KEY_FILE)).keys
    with pytest.raises(Unsealable, match="is not sealed"):
        migrating.reseal(db.path, Vault([NEW, old]), clock())
    assert turn.task.state == "working"


@story
async def test_rotation_is_refused_while_somebody_has_the_registry_open(
    db: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that knows only the old key would go on sealing with it."""
    monkeypatch.setattr(connections, "BUSY_TIMEOUT_MS", 100)
    await running(db)
    before = everything(db.path)
    vault = sealing.key_file(db.path.with_name(migrating.KEY_FILE))
    with pytest.raises(StorageUnavailable, match="stop its server"):
        await asyncio.to_thread(migrating.reseal, db.path, Vault([NEW, *vault.keys]), clock())
    assert everything(db.path) == before


@story
async def test_rotation_costs_each_row_once_however_many_there_are(db: Database, clock: Clock) -> None:
    """Twice the rows are about twice the work, counted in steps of SQLite's machine."""
    session = (await running(db)).task.session

    async def steps(count: int, key: bytes) -> int:
        def more(tx: Tx) -> None:
            for _ in range(count):
                events.emit(tx, OWNER, session, "a.name", {})

        await db.write(more)
        counted = 0

        def count_one() -> int:
            nonlocal counted
            counted += 1
            return 0

        def bring_over(tx: Tx) -> None:
            tx._connection.set_progress_handler(count_one, 100)
            for _ in sealing.reseal(tx._connection, Vault([key, *known])):
                pass
            tx._connection.set_progress_handler(None, 0)

        known = [*sealing.key_file(db.path.with_name(migrating.KEY_FILE)).keys, OLD, NEW]
        await db.write(bring_over)
        return counted

    few = await steps(400, OLD)
    many = await steps(1200, NEW)  # 1,600 then
    assert many < 8 * few
