"""The registry's database: one writer, a few readers, transactions as plain functions of `tx`.

`write` runs a whole function on the writer's thread; functions that wait there at the same moment share one commit,
each in its own savepoint, and each caller is answered after the commit that holds its change. `write_along` lets a
function wait for a commit of others that gives it something to do, and share that. Reads that are asked for
at the same moment share a reader and a snapshot. This module alone knows `aiosqlite`; it knows no table.
"""

import asyncio
import itertools
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import aiosqlite

from background import connections, migrating
from background.errors import StorageUnavailable
from background.limits import Limits
from background.masks import Masks
from background.redaction import redact as redact_text
from background.sealing import Vault
from background.signals import Bell, Ear

P = ParamSpec("P")
T = TypeVar("T")
Row = sqlite3.Row
Clock = Callable[[], int]

READERS = 3
DEFAULT_LIMITS = Limits()
SHRINK_TIMEOUT_MS = 200
PAGES_GIVEN_BACK = 1024  # of 4 KiB, at a time
FOREIGN_POLL_S = 0.1
GROUP = 64  # functions that share a commit, or a snapshot, at most


def wall_clock() -> int:
    """Microseconds since 1970, UTC."""
    return time.time_ns() // 1000


class Tx:
    """One transaction: the only way to the rows.

    `now` is its time, the same for all of it; `limits` are its bounds; `seal` and `unseal` are the vault's, for what
    people said and models answered; `redact` masks what a ceiling of `redacted` must not keep.
    """

    def __init__(self, connection: sqlite3.Connection, now: int, means: "Means") -> None:
        self._connection = connection
        self.now = now
        self.limits = means.limits
        self.seal = means.vault.seal
        self.unseal = means.vault.unseal
        self.redact = means.redact
        self.topics: set[str] = set()

    def q(self, sql: str, **params: Any) -> list[Row]:
        """All rows of a statement. Never a cursor: an open `returning` would make the commit fail."""
        return self._connection.execute(sql, params).fetchall()

    def one(self, sql: str, **params: Any) -> Row | None:
        """The first row of a statement, or None."""
        rows = self._connection.execute(sql, params).fetchall()
        return rows[0] if rows else None

    def value(self, sql: str, **params: Any) -> Any:
        """The first column of the first row, or None."""
        row = self.one(sql, **params)
        return None if row is None else row[0]

    def x(self, sql: str, **params: Any) -> int:
        """Run a statement without `returning`; the number of rows it changed."""
        return self._connection.execute(sql, params).rowcount

    def ring(self, topic: str) -> None:
        """Wake those who listen for `topic` once, and only if, this transaction has been committed."""
        self.topics.add(topic)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What is written in this block is undone where it raises, and nothing else is.

        Raises `StorageUnavailable` where that has cost the whole transaction: a full disk does.
        """
        self._connection.execute("savepoint apart")
        try:
            yield
        except BaseException as error:
            if not self._connection.in_transaction:
                raise StorageUnavailable("the transaction is gone") from error
            self._connection.execute("rollback to apart")
            self._connection.execute("release apart")
            raise
        self._connection.execute("release apart")


@dataclass(frozen=True)
class Means:
    """What every transaction of a database is given."""

    limits: Limits
    vault: Vault
    redact: Callable[[str], str]


@dataclass
class _Call:
    """A function that waits for a connection, and the future of the caller who waits for it."""

    function: Callable[[Tx], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    topics: set[str] = field(default_factory=set)
    last: bool = False  # of those who go along with a commit

    def run(self, tx: Tx) -> None:
        try:
            self.result = self.function(tx)
        except BaseException as error:  # noqa: BLE001 - handed to the caller, whose future it is
            self.error = error
        else:
            self.topics = tx.topics

    def fail(self, error: BaseException) -> None:
        """Nothing of it is stored, and nothing that the function said is true."""
        self.forget()
        self.error = error

    def forget(self) -> None:
        self.result, self.error, self.topics = None, None, set()

    def answer(self) -> None:
        """On the event loop. A caller that was canceled gets nothing; what it wrote stands all the same."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(_told(self.error))


class _Connection(aiosqlite.Connection):
    """aiosqlite's connection, with one method more: run a whole function on its thread."""

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        return await self._execute(function, self._conn, *args)


class Database:
    """The registry's file. `now` gives the time of transactions: microseconds, UTC.

    `vault` seals its cells; by default that of the key file beside it.
    """

    def __init__(
        self,
        path: Path,
        now: Clock = wall_clock,
        limits: Limits = DEFAULT_LIMITS,
        vault: Vault | None = None,
        redact: Callable[[str], str] = redact_text,
    ) -> None:
        self.path = path
        self.now = now
        self.limits = limits
        self._vault = vault
        self.masks = Masks(redact)
        self.bell = Bell()
        self._calls: deque[_Call] = deque()
        self._along: dict[str, _Call] = {}  # by the topic that each waits for
        self._asked: list[_Call] = []  # reads of this turn of the event loop
        self._idle = asyncio.Event()  # nobody waits for the writer
        self._idle.set()
        self._closing = False
        self._writer: _Connection | None = None
        self._readers: list[_Connection] = []
        self._next_reader: Iterator[_Connection] = iter(())
        self._poll: asyncio.Task[None] | None = None

    async def open(self) -> "Database":
        """Open and migrate. Raises `UnusableDatabase`: damaged, of a later version, or sealed with a key that is not there."""
        vault = await asyncio.to_thread(migrating.prepare, self.path, self._vault, self.now())
        self._means = Means(self.limits, vault, self.masks)
        try:
            self._writer = await _connect(self.path)
            for _ in range(READERS):  # one by one, so that those that were opened are closed when the next one fails
                self._readers.append(await _connect(self.path, "pragma query_only=on"))
        except BaseException:
            await self.close()
            raise
        self._next_reader = itertools.cycle(self._readers)
        self._poll = asyncio.create_task(self._watch_others())
        return self

    async def close(self) -> None:
        """Answer whoever waits, refuse whoever comes, and close all connections.

        The writer's thread is no daemon: without this the process does not end.
        """
        self._closing = True
        self._look()
        await self._idle.wait()
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.gather(self._poll, return_exceptions=True)
        for connection in filter(None, (*self._readers, self._writer)):
            await connection.close()
        self._readers, self._writer = [], None

    async def write(self, function: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function(tx, …)` as one transaction and return what it returned, after the commit.

        It may run more than once, so it must change nothing but rows. What it raises is raised here, and nothing of
        it is stored; `StorageUnavailable` where the file cannot be written now, or another process has held it for
        longer than the busy timeout. Canceling the caller changes nothing.
        """
        call = _Call(lambda tx: _whole(function, tx, *args, **kwargs), asyncio.get_running_loop().create_future())
        self._queue(call)
        return await call.future

    async def write_along(
        self,
        topic: str,
        ear: Ear,
        patience_s: float,
        function: Callable[[Tx], T],
        last: bool = False,
    ) -> T:
        """Like `write`, but in the next commit that rings `topic`: after all that is in it, and part of it. One a topic.

        `ear` listens for the topic: when it has been rung without us, by another process's commit say, or after
        `patience_s` seconds, it is a commit of its own. `last`: after others who go along. Whoever is canceled
        before it ran takes it back.
        """
        call = _Call(partial(_whole, function), asyncio.get_running_loop().create_future(), last=last)
        call.future.add_done_callback(lambda _: ear.wake())
        assert topic not in self._along, f"somebody else goes along with {topic}"  # and would wait for ever
        self._along[topic] = call
        try:
            await ear.wait(patience_s)
        finally:
            waits = self._along.pop(topic, None)
        if waits is not None:
            self._queue(call)
        return await call.future

    def _queue(self, call: _Call) -> None:
        if self._writer is None or self._closing:
            raise StorageUnavailable("the registry is closed")
        self._calls.append(call)
        if self._idle.is_set():
            self._idle.clear()
            self._begin_draining()

    async def read(self, function: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function(tx, …)` on a reader, over one snapshot; it cannot write, and may run more than once."""
        if not self._readers or self._closing:
            raise StorageUnavailable("the registry is closed")
        loop = asyncio.get_running_loop()
        call = _Call(lambda tx: _whole(function, tx, *args, **kwargs), loop.create_future())
        if not self._asked:
            loop.call_soon(self._look)
        self._asked.append(call)
        return await call.future

    async def shrink(self) -> bool:
        """Give back the space of what was deleted, and empty the write-ahead log, where old text would stay.

        False where a reader is in the way: ask again.
        """
        if self._writer is None or self._closing:
            raise StorageUnavailable("the registry is closed")
        try:
            while await self._writer.run(_give_back):
                pass  # whoever waits for the writer has a turn in between
            return await self._writer.run(_empty_log)
        except sqlite3.DatabaseError as error:
            raise _told(error) from error.__cause__

    def _look(self) -> None:
        """On the event loop: hand what was asked in this turn of it to the readers, in groups."""
        asked, self._asked = self._asked, []
        for start in range(0, len(asked), GROUP):
            reader, calls = next(self._next_reader), asked[start : start + GROUP]
            reader._tx.put_nowait((None, partial(self._look_up, reader._conn, calls, calls[0].future.get_loop())))

    def _look_up(self, connection: sqlite3.Connection, calls: list[_Call], loop: asyncio.AbstractEventLoop) -> None:
        """On a reader's thread."""
        self._see(connection, calls)
        loop.call_soon_threadsafe(_answer_all, calls)

    def _see(self, connection: sqlite3.Connection, calls: list[_Call]) -> None:
        """All over one snapshot; where one of them cost all of them theirs, each by itself."""
        now = self.now()
        try:
            with connections.transaction(connection, "begin"):
                for call in calls:
                    call.run(Tx(connection, now, self._means))
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            if len(calls) == 1:
                return calls[0].fail(calls[0].error or error)
            for call in calls:
                call.forget()
                self._see(connection, [call])

    def _begin_draining(self) -> None:
        """On the event loop."""
        if self._writer is not None:
            drain = partial(self._drain, self._writer._conn, asyncio.get_running_loop())
            self._writer._tx.put_nowait((None, drain))

    def _drain(self, connection: sqlite3.Connection, loop: asyncio.AbstractEventLoop) -> None:
        """On the writer's thread: everybody who waits now, in one commit."""
        calls, rung = self._waiting(GROUP), set[str]()
        left = deque(calls)
        try:
            if not self._together(connection, calls, rung):
                left = deque(calls)
                while left:
                    self._alone(connection, left[0])
                    rung |= left.popleft().topics
        except connections.Held as held:  # for all who wait: else each would find it so, one timeout after the other
            behind = self._waiting(len(self._calls))
            calls += behind
            for call in (*left, *behind):
                call.fail(held)
        loop.call_soon_threadsafe(self._answer, calls, rung)

    def _waiting(self, most: int) -> list[_Call]:
        return [self._calls.popleft() for _ in range(min(most, len(self._calls)))]

    def _answer(self, calls: list[_Call], rung: set[str]) -> None:
        """On the event loop: answer, after arranging that those who came meanwhile get their turn."""
        if self._calls:
            self._begin_draining()
        else:
            self._idle.set()
        for topic in rung:
            self.bell.ring(topic)
        for call in calls:
            call.answer()

    def _together(self, connection: sqlite3.Connection, calls: list[_Call], rung: set[str]) -> bool:
        """One commit for all, and for those who go along with it; those are added to `calls`, and `rung` is what it rang.

        False if that was impossible, and then nothing of it is stored and nobody answered.
        """
        if len(calls) == 1 and not self._along:
            return False
        try:
            with connections.transaction(connection, "begin immediate"):
                now = self.now()  # once the file is ours: what another process has written is not later than this
                for place, call in enumerate(calls, 1):  # it grows on the way
                    connection.execute("savepoint call")
                    call.run(Tx(connection, now, self._means))
                    if call.error is not None:
                        connection.execute("rollback to call")  # fails where a full disk took all savepoints with it
                    connection.execute("release call")
                    rung |= call.topics
                    if place == len(calls):
                        calls += self._going_along(rung)
        except connections.Held:
            raise
        except sqlite3.Error:
            rung.clear()
            return _forget(calls)
        return True

    def _going_along(self, rung: set[str]) -> list[_Call]:
        """Who goes along next with a commit that rings these topics, if anybody does; that topic is rung no more."""
        there = [(call.last, topic) for topic in rung if (call := self._along.get(topic))]
        topic = min(there)[1] if there else ""
        call = self._along.pop(topic, None)  # None, too, for one that is tired of waiting this very moment
        if call is None:
            return []
        rung.discard(topic)
        return [call]

    def _alone(self, connection: sqlite3.Connection, call: _Call) -> None:
        """A commit of its own. Raises `connections.Held`, like `_together`: that is not its own trouble."""
        try:
            with connections.transaction(connection, "begin immediate"):
                call.run(Tx(connection, self.now(), self._means))
                if call.error is not None:
                    raise call.error
        except connections.Held:
            raise
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            call.fail(error)

    async def _watch_others(self) -> None:
        """Another process's commit is heard of by looking: nothing else tells of it."""
        seen = None
        while self._writer is not None:
            with suppress(sqlite3.OperationalError):  # what could not be looked up now is found at the next look
                version = await self._writer.run(_data_version)
                if seen is not None and version != seen:
                    self.bell.ring_all()
                seen = version
            await asyncio.sleep(FOREIGN_POLL_S)


def _whole(function: Callable[Concatenate[Tx, P], T], tx: Tx, *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return function(tx, *args, **kwargs)
    except StopIteration as error:  # would end the future's own generator and hang its caller
        raise RuntimeError("a transaction function raised StopIteration") from error


def _answer_all(calls: list[_Call]) -> None:
    for call in calls:
        call.answer()


def _forget(calls: list[_Call]) -> bool:
    for call in calls:
        call.forget()
    return False


def _told(error: BaseException) -> BaseException:
    """What a caller can do something about: a file that cannot be used now is one kind, whatever SQLite calls it."""
    # A damaged file is a bare DatabaseError; its subclasses but one are about what was asked.
    if isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError:
        told = StorageUnavailable(str(error))
        told.__cause__ = error
        return told
    return error


def _give_back(connection: sqlite3.Connection) -> bool:
    """Some of the free pages leave the file. Whether there are more."""
    before = connection.execute("pragma freelist_count").fetchone()[0]
    if before:
        # Not by `execute`: the statement has rows without columns, and Python's cursor stops at the first, after a page.
        connection.executescript(f"pragma incremental_vacuum({PAGES_GIVEN_BACK})")
    return 0 < connection.execute("pragma freelist_count").fetchone()[0] < before


def _empty_log(connection: sqlite3.Connection) -> bool:
    connection.execute(f"pragma busy_timeout={SHRINK_TIMEOUT_MS}")  # whoever wants to write waits for this
    try:
        busy, _, _ = connection.execute("pragma wal_checkpoint(truncate)").fetchone()
    finally:
        connection.execute(f"pragma busy_timeout={connections.BUSY_TIMEOUT_MS}")
    return not busy


def _data_version(connection: sqlite3.Connection) -> int:
    return connection.execute("pragma data_version").fetchone()[0]


async def _connect(path: Path, *pragmas: str) -> _Connection:
    connection = _Connection(lambda: connections.open_file(path, *pragmas), iter_chunk_size=64)
    await connection
    return connection
