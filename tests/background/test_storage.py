"""The registry's file: made and brought up by one at a time, refused when it is too new, and usable again after it was full."""

import asyncio
import itertools
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Awaitable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from background import connections, database, migrating
from background.database import Database, Tx
from background.errors import NewerDatabase, StorageUnavailable, UnusableDatabase
from background.migrating import migrate
from tests.background.story import everything, opened, story, until
from tests.support.clock import Clock

ROOT = Path(__file__).parents[2]
OPENER = """
import asyncio, sys
from pathlib import Path
from background.database import Database

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    db = await Database(Path(sys.argv[1])).open()
    await db.write(lambda tx: tx.x("insert into workers values (:id, 'here', 1, 1, 1, 1)", id=sys.argv[2]))
    await db.close()

asyncio.run(main())
"""


# -- opening


@pytest.fixture
def openers(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that each will open the same file, once they are told to."""
    command = [sys.executable, "-c", OPENER, str(tmp_path / "data" / "registry.db")]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([*command, f"p{number}"], cwd=ROOT, **pipes) for number in range(4)]
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_processes_that_open_a_fresh_folder_at_once_are_all_right(
    openers: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Switching to the write-ahead log does not heed the busy timeout: only the lock file orders them."""
    for process in openers:
        assert process.stdout and process.stdout.readline() == "ready\n"
    for process in openers:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    ended = [process.communicate(timeout=30) for process in openers]
    assert [process.returncode for process in openers] == [0] * len(openers), ended
    stored = everything(tmp_path / "data" / "registry.db")
    assert [row[0] for row in stored["workers"]] == ["p0", "p1", "p2", "p3"]
    assert len(stored["migrations"]) == len(list(migrating.MIGRATIONS.glob("*.sql")))


@story
async def test_opening_again_changes_nothing(db: Database, clock: Clock) -> None:
    before = everything(db.path)
    await db.close()
    clock.advance(60)
    async with opened(db.path, clock):
        assert everything(db.path) == before


@story
async def test_only_their_owner_reads_the_files(db: Database) -> None:
    await db.write(Tx.x, "insert into workers values ('w', 'here', 1, 1, 1, 1)")
    files = list(db.path.parent.iterdir())
    assert {f"{db.path.name}{suffix}" for suffix in ("", "-wal", "-shm")} < {file.name for file in files}
    for file in files:
        mode = stat.S_IMODE(file.stat().st_mode)
        assert mode & 0o077 == 0, f"{file.name} has mode {mode:o}"


def test_a_folder_that_is_made_is_its_owner_s_alone(tmp_path: Path, clock: Clock) -> None:
    async def story() -> None:
        async with opened(tmp_path / "new" / "registry.db", clock):
            assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700

    asyncio.run(story())


@story
async def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is(db: Database, clock: Clock) -> None:
    await db.write(Tx.x, "insert into migrations values (99, '0099_later', 1)")
    await db.close()
    before = everything(db.path)
    with pytest.raises(NewerDatabase, match=r"newer version \(schema 99; this one knows \d+\)"):
        async with opened(db.path, clock):
            pass
    assert everything(db.path) == before


@pytest.mark.parametrize("content", [b"This is no database. " * 500, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_told_in_one_line_that_names_it_and_stays_as_it_is(
    tmp_path: Path, clock: Clock, content: bytes
) -> None:
    path = tmp_path / "registry.db"
    path.write_bytes(content)

    async def story() -> None:
        async with opened(path, clock):
            pass

    with pytest.raises(UnusableDatabase, match="restore it from a backup") as caught:
        asyncio.run(story())
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert path.read_bytes() == content


@pytest.mark.parametrize("failing", range(5), ids=["preparing", "writer", "reader 1", "reader 2", "reader 3"])
def test_what_cannot_be_opened_leaves_no_thread_behind(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The threads of connections are no daemons: one that is left would keep the process from ending."""
    opens = itertools.count()
    real = connections.open_file

    def fails_once(*args: Any) -> sqlite3.Connection:
        if next(opens) == failing:
            raise sqlite3.OperationalError("unable to open database file")
        return real(*args)

    monkeypatch.setattr(connections, "open_file", fails_once)
    before = connection_threads()

    async def story() -> None:
        with pytest.raises((sqlite3.OperationalError, StorageUnavailable), match="unable to open"):
            await Database(tmp_path / "registry.db", clock).open()
        await until(lambda: connection_threads() == before)

    asyncio.run(story())


def connection_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if "_connection_worker_thread" in thread.name}


@story
async def test_each_open_connection_has_a_thread_and_closing_ends_them_all(db: Database) -> None:
    opened_here = connection_threads()
    assert len(opened_here) >= database.READERS + 1
    await db.close()
    await until(lambda: not any(thread.is_alive() for thread in opened_here))


# -- migrations


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "bare.db", isolation_level=None)) as connection:
        yield connection


def tables(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("select name from sqlite_master where type = 'table' order by name")]


FIRST = "create table migrations (number integer primary key, name text, applied_at integer);\ncreate table a (x);"


def test_migrations_run_in_order_each_once(bare: sqlite3.Connection, tmp_path: Path) -> None:
    tmp_path.joinpath("0001_first.sql").write_text(FIRST)
    migrate(bare, 5, tmp_path)
    tmp_path.joinpath("0003_third.sql").write_text("insert into a select x + 1 from a;")
    tmp_path.joinpath("0002_second.sql").write_text("insert into a values (1); -- one; and a remark\n")
    migrate(bare, 6, tmp_path)
    migrate(bare, 7, tmp_path)
    assert bare.execute("select x from a").fetchall() == [(1,), (2,)]
    recorded = bare.execute("select * from migrations").fetchall()
    assert recorded == [(1, "0001_first", 5), (2, "0002_second", 6), (3, "0003_third", 6)]


def test_a_migration_that_fails_is_undone_whole_and_tried_again_at_the_next_start(
    bare: sqlite3.Connection, tmp_path: Path
) -> None:
    tmp_path.joinpath("0001_first.sql").write_text(FIRST)
    second = tmp_path / "0002_second.sql"
    second.write_text("create table b (x); insert into no_such_table values (1);")
    with pytest.raises(sqlite3.OperationalError, match="no_such_table"):
        migrate(bare, 5, tmp_path)
    assert tables(bare) == ["a", "migrations"]
    second.write_text("create table b (x);")
    migrate(bare, 6, tmp_path)
    assert tables(bare) == ["a", "b", "migrations"]


# -- where nothing can be written


def fill(tx: Tx, name: str, size: int) -> str:
    """A row of about `size` bytes."""
    tx.x("insert into workers values (:id, :host, 1, 1, 1, 1)", id=name, host="x" * size)
    return name


def no_room(tx: Tx) -> None:
    """From now on the file may not grow by more than a few pages, as on a full disk."""
    tx.x(f"pragma max_page_count = {tx.value('pragma page_count') + 3}")


def room_again(tx: Tx) -> None:
    tx.x("pragma max_page_count = 1000000")


@story
async def test_a_full_disk_is_told_to_those_whose_change_does_not_fit(db: Database) -> None:
    await db.write(no_room)
    writes = [db.write(fill, "small", 10), db.write(fill, "large", 100_000), db.write(fill, "little", 10)]
    small, large, little = await asyncio.gather(*writes, return_exceptions=True)
    assert (small, little) == ("small", "little")
    assert isinstance(large, StorageUnavailable)
    assert "full" in str(large)
    assert [row[0] for row in everything(db.path)["workers"]] == ["little", "small"]


@story
async def test_what_is_stored_can_be_read_while_the_disk_is_full_and_written_once_there_is_room(db: Database) -> None:
    await db.write(fill, "before", 10)
    await db.write(no_room)
    with pytest.raises(StorageUnavailable):
        await db.write(fill, "large", 100_000)
    assert await db.read(Tx.value, "select id from workers") == "before"
    await db.write(room_again)
    assert await db.write(fill, "large", 100_000) == "large"


# -- where another process does not let go


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for line in sys.stdin:
    connection.execute(line)
    print("done", flush=True)
"""


class Holder:
    """Another process with the same file open, which says `begin immediate` when it is told to."""

    def __init__(self, path: Path) -> None:
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], **pipes)

    def says(self, sql: str) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{sql}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    with closing(Holder(tmp_path / "registry.db")) as holder:
        yield holder


async def impatient(db: Database) -> list[str]:
    """A busy timeout that the tests need not wait for. Returns what the writer's connection is told from now on."""
    heard: list[str] = []
    await db.write(Tx.x, "pragma busy_timeout = 200")
    await db.write(lambda tx: tx._connection.set_trace_callback(heard.append))
    heard.clear()
    return heard


async def told_of(*writes: Awaitable[Any]) -> list[str]:
    """What those are told who get nothing else."""
    answers = await asyncio.gather(*writes, return_exceptions=True)
    assert {type(answer) for answer in answers} == {StorageUnavailable}
    return [str(answer) for answer in answers]


@pytest.mark.parametrize("count", [1, 2, database.GROUP, 3 * database.GROUP])
@story
async def test_who_waits_for_a_file_that_another_process_holds_is_told_once_the_busy_timeout_is_over(
    db: Database, holder: Holder, count: int
) -> None:
    """All at once, however many they are: one after the other the last of 64 would wait for five minutes."""
    heard = await impatient(db)
    holder.says("begin immediate")
    holder.process.send_signal(signal.SIGSTOP)  # it stands still in the middle of its transaction
    ran: list[str] = []
    writes = [db.write(lambda tx, name=f"w{number}": ran.append(name)) for number in range(count)]
    assert await told_of(*writes) == ["database is locked"] * count
    assert ran == []
    assert heard.count("begin immediate") == 1


@story
async def test_who_comes_while_others_wait_is_told_with_them(db: Database, holder: Holder) -> None:
    heard = await impatient(db)
    holder.says("begin immediate")
    first = asyncio.create_task(db.write(fill, "first", 1))
    await until(lambda: not db._calls and not db._idle.is_set())  # the writer waits for the lock
    assert len(await told_of(first, db.write(fill, "second", 1), db.write(fill, "third", 1))) == 3
    assert heard.count("begin immediate") == 1


@story
async def test_the_time_of_a_commit_is_not_earlier_than_what_it_waited_for(
    db: Database, clock: Clock, holder: Holder
) -> None:
    """Else what another process has ended would seem to end after what follows it here has begun."""

    def first(tx: Tx) -> int:
        tx.ring("next")
        return tx.now

    with db.bell.listen("next") as ear:
        along = asyncio.create_task(db.write_along("next", ear, 60, lambda tx: tx.now))
        await until(lambda: bool(db._along))
        holder.says("begin immediate")
        alone = asyncio.create_task(db.write(first))
        await until(lambda: not db._calls and not db._idle.is_set())  # the writer waits for the lock
        later = clock.advance(1)
        holder.close()
        assert [await alone, await along] == [later, later]


@story
async def test_once_the_other_process_is_gone_everything_can_be_written(db: Database, holder: Holder) -> None:
    await impatient(db)
    holder.says("begin immediate")
    await told_of(db.write(fill, "a", 1), db.write(fill, "b", 1))
    holder.close()
    assert await asyncio.gather(*(db.write(fill, name, 1) for name in "ab")) == ["a", "b"]
    assert [row[0] for row in everything(db.path)["workers"]] == ["a", "b"]


@story
async def test_those_who_were_written_before_the_file_was_taken_are_not_told_otherwise(
    db: Database, holder: Holder
) -> None:
    """A commit that they shared came to nothing, so each goes alone; then another process comes in between."""
    await impatient(db)
    lost: list[str] = []

    def loses(tx: Tx) -> None:
        lost.append("its transaction")
        tx.x("rollback")
        if len(lost) == 2:
            holder.says("begin immediate")

    first, *others = [db.write(fill, "first", 1), db.write(loses), db.write(fill, "third", 1), db.write(fill, "4th", 1)]
    told = asyncio.gather(first, told_of(*others))
    assert await told == ["first", ["cannot commit - no transaction is active", *["database is locked"] * 2]]
    assert [row[0] for row in everything(db.path)["workers"]] == ["first"]
