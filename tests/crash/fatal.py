"""Where a server dies: right before or right after a commit of its own, by a signal from its own hand.

Runs inside the server, `python -m tests.crash.fatal DOOM DIARY END`. The product has no hook for it: the places where it commits are wrapped from here. A commit is
known by the functions that it carries, `terminal.settle 3` being the third that settles something, so that a place
stays the same place whatever else commits in between. Only commits that changed a row count.
"""

import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from background import connections, database, delivery, queue, worker
from background.limits import SECOND
from background.signals import Ear
from knowledge import documents, store
from web import process, push, settings

QUICK_RETRIES_S = (0.02, 0.08)  # a job whose model always fails would otherwise keep a story waiting
QUICK_CALLS_S = 0.02  # a webhook's receiver refuses now and then
QUICK_NUDGE = SECOND // 5  # and so would the minute after which a briefing that failed is tried again


class Fate:
    """Counts commits, notes each in the file `diary`, and sends this process `end` at the one that `doom` names.

    `doom` is "before PLACE N" or "after PLACE N", or empty: then it lives.
    """

    def __init__(self, doom: str, diary: str, end: int) -> None:
        self._doom = doom
        self._end = end
        self._diary = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._seen: Counter[str] = Counter()

    def reach(self, when: str, places: set[str]) -> None:
        """This process stands `before` or `after` a commit. Does not return where it is to be killed."""
        if when == "before":
            self._seen.update(places)
        for place in sorted(places):
            moment = f"{when} {place} {self._seen[place]}"
            os.write(self._diary, f"{moment}\n".encode())
            if moment == self._doom:
                os.kill(os.getpid(), self._end)


def arm(fate: Fate) -> None:
    """From now on every commit of this process passes `fate`."""
    worker.BACKOFF_S = QUICK_RETRIES_S
    delivery.MINUTE = QUICK_NUDGE
    push.FIRST_PAUSE_S = QUICK_CALLS_S
    carried: set[str] = set()  # of the transaction that is open; the writer has one thread
    _name_functions(carried)
    _watch_registry(fate, carried)
    _watch_knowledge(fate)
    _watch_shrinking(fate)


def _name_functions(carried: set[str]) -> None:
    write, write_along = database.Database.write, database.Database.write_along

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(tx: database.Tx, *args: Any, **kwargs: Any) -> Any:
            carried.add(place_of(function, *args))
            return function(tx, *args, **kwargs)

        return noted

    async def named(self: database.Database, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await write(self, noting(function), *args, **kwargs)

    async def named_along(
        self: database.Database,
        topic: str,
        ear: Ear,
        patience_s: float,
        function: Callable[..., Any],
        last: bool = False,
    ) -> Any:
        return await write_along(self, topic, ear, patience_s, noting(function), last)

    database.Database.write, database.Database.write_along = named, named_along
    begin = worker._begin

    def named_begin(tx: database.Tx, run: queue.Run, how: worker.Begin) -> worker.Claimed:
        if run.kind in worker.TURNS:
            carried.add(place_of(how))
        return begin(tx, run, how)

    worker._begin = named_begin


def place_of(function: Callable[..., Any], *args: Any) -> str:
    """`terminal.settle` for what stands there; a leading underscore is not told. What becomes of a run in the queue is
    told apart by the run's kind: `queue.finish.push`.
    """
    function = function.func if isinstance(function, partial) else function
    place = f"{function.__module__.rpartition('.')[2]}.{function.__name__.lstrip('_')}"
    runs = [each.kind for each in args if isinstance(each, queue.Run)] if place.startswith("queue.") else []
    return ".".join([place, *runs])


def _watch_registry(fate: Fate, carried: set[str]) -> None:
    transaction = connections.transaction

    @contextmanager
    def watched(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
        if begin == "begin":  # a reader's
            with transaction(connection, begin):
                yield
            return
        carried.clear()
        changes = connection.total_changes
        with transaction(connection, begin):
            yield
            places = set(carried or {"migrating.migrate"}) if connection.total_changes > changes else set()
            fate.reach("before", places)
        fate.reach("after", places)

    connections.transaction = watched


def _watch_knowledge(fate: Fate) -> None:
    transaction = documents.transaction

    @contextmanager
    def watched(db: Any) -> Iterator[None]:
        with transaction(db):
            yield
            fate.reach("before", {"knowledge.write"})
        fate.reach("after", {"knowledge.write"})

    documents.transaction = watched


def _watch_shrinking(fate: Fate) -> None:
    """What was erased leaves the files: no commit of a row, and a place to die at all the same."""
    for owner, name, place in ((database.Database, "shrink", "database.shrink"), (store.Store, "purge", "store.purge")):
        setattr(owner, name, _watched(fate, getattr(owner, name), place))


def _watched(fate: Fate, function: Callable[..., Any], place: str) -> Callable[..., Any]:
    async def watched(*args: Any) -> Any:
        fate.reach("before", {place})
        done = await function(*args)
        fate.reach("after", {place})
        return done

    return watched


def main() -> None:
    """What `outrider serve` does, on the way to its doom."""
    doom, diary, end = sys.argv[1:]
    arm(Fate(doom, diary, int(end)))
    sys.exit(process.serve(settings.load({}), worker=True))
