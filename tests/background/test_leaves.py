"""The small rooms: clean text, times as they go out, the bell, faults and signals, and the console's events."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from background import events
from background.database import Database
from background.errors import Fault, LeaseLost, NewerDatabase, StorageUnavailable, TryAgain, not_found
from background.limits import Limits
from background.signals import Bell
from background.text import clean, clip
from background.times import rfc3339, rfc3339_or_none
from background.worker import backoff
from tests.background.factories import chat
from tests.background.story import rows, story
from web.app import limits_of
from web.setting_fields import Settings

Run = Callable[[Coroutine[Any, Any, Any]], Any]

# -- text


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_clean_text_can_be_stored_and_sent_and_is_as_long_as_it_was(text: str) -> None:
    """A lone surrogate cannot be bound to SQLite, and a NUL breaks an index."""
    cleaned = clean(text)
    assert cleaned.encode().decode() == cleaned
    assert "\0" not in cleaned
    assert len(cleaned) == len(text)
    assert clean(cleaned) == cleaned


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=("Cs",))))
def test_text_that_is_clean_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


@given(st.text(max_size=300), st.integers(min_value=1, max_value=100))
def test_a_clipped_text_is_one_line_that_fits_and_says_when_something_was_cut(text: str, limit: int) -> None:
    clipped = clip(text, limit)
    line = " ".join(text.split())
    assert len(clipped) <= limit
    assert len(clipped.splitlines()) <= 1
    if clipped != line:
        assert clipped.endswith("…")
        assert line.startswith(clipped[:-1])


# -- times


def test_times_go_out_in_utc_with_milliseconds_always() -> None:
    """A18."""
    assert rfc3339(1_800_000_000_000_000) == "2027-01-15T08:00:00.000Z"
    assert rfc3339(1_800_000_000_123_999) == "2027-01-15T08:00:00.123Z"
    assert rfc3339_or_none(None) is None


@given(st.integers(min_value=0, max_value=4_000_000_000_000_000))
def test_a_time_that_goes_out_is_the_time_that_was_kept_to_the_millisecond(at: int) -> None:
    told = rfc3339(at)
    back = datetime.fromisoformat(told)
    assert len(told) == len("2027-01-15T08:00:00.000Z")
    assert (back - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) == at // 1000


# -- the bell


def test_a_ring_between_two_waits_is_kept_and_a_second_one_is_not_counted(run: Run) -> None:
    async def story() -> list[bool]:
        bell = Bell()
        with bell.listen("a") as ear:
            before = await ear.wait(0)
            bell.ring("a")
            bell.ring("a")
            return [before, await ear.wait(0), await ear.wait(0)]

    assert run(story()) == [False, True, False]


def test_a_ring_is_heard_by_all_who_listen_for_its_topic_and_by_no_other(run: Run) -> None:
    async def story() -> list[bool]:
        bell = Bell()
        with bell.listen("a") as one, bell.listen("a", "b") as two, bell.listen("b") as three:
            bell.ring("a")
            return [await ear.wait(0) for ear in (one, two, three)]

    assert run(story()) == [True, True, False]


def test_when_nobody_knows_what_happened_everybody_is_woken(run: Run) -> None:
    async def story() -> list[bool]:
        bell = Bell()
        with bell.listen("a") as one, bell.listen("b") as two:
            bell.ring_all()
            return [await ear.wait(0) for ear in (one, two)]

    assert run(story()) == [True, True]


def test_whoever_waits_is_woken_by_a_ring(run: Run) -> None:
    async def story() -> bool:
        bell = Bell()
        with bell.listen("a") as ear:
            waiting = asyncio.create_task(ear.wait(5))
            await asyncio.sleep(0)
            bell.ring("a")
            return await waiting

    assert run(story()) is True


def test_topics_that_nobody_listens_for_leave_nothing_behind(run: Run) -> None:
    async def story() -> int:
        bell = Bell()
        for number in range(100):
            with bell.listen(f"view:{number}"):
                bell.ring(f"view:{number}")
        return len(bell._ears)

    assert run(story()) == 0


# -- faults and signals


def test_a_signal_is_no_exception_so_that_a_broad_except_cannot_eat_it() -> None:
    assert not issubclass(LeaseLost, Exception)
    for fault in (Fault, StorageUnavailable, NewerDatabase, TryAgain):
        assert issubclass(fault, Exception)


def test_a_fault_is_of_a_known_kind_and_carries_what_the_doors_tell() -> None:
    fault = Fault("limit", "Too many.", reason="QUEUE_LIMIT", limit=3)
    assert (fault.kind, fault.message, str(fault), fault.reason, fault.details) == (
        "limit",
        "Too many.",
        "Too many.",
        "QUEUE_LIMIT",
        {"limit": 3},
    )
    assert not_found("job").kind == "not_found"
    with pytest.raises(AssertionError):
        Fault("odd", "?")


@given(st.integers(min_value=1, max_value=1000))
def test_a_pause_before_another_try_grows_and_is_bounded(tries: int) -> None:
    assert 0.8 * min(60, 0.5 * 2 ** min(tries - 1, 20)) <= backoff(tries) <= 1.2 * 60


def test_the_bounds_of_transactions_are_those_of_the_settings(tmp_path: Path) -> None:
    assert limits_of(Settings(data=tmp_path)) == Limits()


# -- events


@story
async def test_events_are_numbered_alike_for_everybody_and_read_on_from_a_number(db: Database) -> None:
    session, other = await chat(db), await chat(db, "other")
    theirs = await chat(db, owner="bob")
    for uid, owner, name in (
        (session.uid, "local", "one"),
        (theirs.uid, "bob", "theirs"),
        (other.uid, "local", "elsewhere"),
        (session.uid, "local", "two"),
    ):
        await db.write(events.emit, owner, uid, name, {"text": "é☃"})
    told = await db.read(events.after, "local", 0)
    assert [event.name for event in told] == ["one", "elsewhere", "two"]
    assert json.loads(told[0].data) == {"text": "é☃"}
    assert [event.name for event in await db.read(events.after, "local", told[0].id)] == ["elsewhere", "two"]
    assert [event.name for event in await db.read(events.after, "local", 0, session.uid)] == ["one", "two"]
    assert await db.read(events.newest) == told[-1].id
    assert await db.read(events.oldest) == told[0].id


@story
async def test_many_events_come_page_by_page_without_a_gap(db: Database) -> None:
    session = await chat(db)

    for number in range(events.PAGE + 10):
        await db.write(events.emit, "local", session.uid, f"e{number}", {})
    first = await db.read(events.after, "local", 0)
    second = await db.read(events.after, "local", first[-1].id)
    assert [event.name for event in [*first, *second]] == [f"e{number}" for number in range(events.PAGE + 10)]


@story
async def test_where_there_are_no_events_there_is_no_number(db: Database) -> None:
    assert (await db.read(events.oldest), await db.read(events.newest)) == (0, 0)
    assert await rows(db, "select * from events") == []
