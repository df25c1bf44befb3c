"""Pieces of an answer that is still being given: seldom, of some size, and never in the way of who gives it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agent import pieces
from agent.pieces import LEAST_CHARS, Pieces
from background.errors import LeaseLost, StorageUnavailable
from tests.background.story import until

Run = Callable[..., Any]
ENOUGH = "x" * LEAST_CHARS


class Reader:
    """Takes what is committed; `fails` are raised instead, one after the other."""

    def __init__(self, *fails: BaseException) -> None:
        self.told: list[tuple[str, bool]] = []
        self.tries = 0
        self.fails = list(fails)
        self.slow = asyncio.Event()
        self.slow.set()

    async def commit(self, text: str, anew: bool) -> None:
        self.tries += 1
        await self.slow.wait()
        if self.fails:
            raise self.fails.pop(0)
        self.told.append((text, anew))

    async def until(self, count: int) -> None:
        await until(lambda: len(self.told) >= count)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PAUSE_S", 0.02)


def test_bits_are_gathered_and_the_first_piece_begins_the_answer(run: Run) -> None:
    async def story() -> None:
        reader = Reader()
        telling = Pieces(reader.commit)
        for word in ("one ", "two ", ENOUGH):
            telling.say(word)
        assert reader.told == []
        await reader.until(1)
        telling.say(ENOUGH + "\x00")
        await reader.until(2)
        await telling.end()
        assert reader.told == [(f"one two {ENOUGH}", True), (ENOUGH + "\ufffd", False)]

    run(story())


def test_an_answer_that_is_over_soon_and_one_that_says_little_have_none(run: Run) -> None:
    async def story() -> None:
        reader = Reader()
        telling = Pieces(reader.commit)
        telling.say(ENOUGH)
        await telling.end()
        telling.say("little")
        await asyncio.sleep(5 * pieces.PAUSE_S)
        await telling.end()
        assert reader.tries == 0

    run(story())


def test_the_next_answer_begins_anew_without_what_was_left_of_the_one_before(run: Run) -> None:
    async def story() -> None:
        reader = Reader()
        telling = Pieces(reader.commit)
        telling.say("first " + ENOUGH)
        await reader.until(1)
        telling.say("never told " + ENOUGH)
        await telling.end()
        telling.say("second " + ENOUGH)
        await reader.until(2)
        await telling.end()
        assert reader.told == [("first " + ENOUGH, True), ("second " + ENOUGH, True)]

    run(story())


def test_while_one_is_committed_the_model_goes_on_and_what_it_says_is_the_next(run: Run) -> None:
    async def story() -> None:
        reader = Reader()
        telling = Pieces(reader.commit)
        reader.slow.clear()
        telling.say(ENOUGH)
        await until(lambda: reader.tries > 0)
        for _ in range(3):
            telling.say("more " + ENOUGH)
        reader.slow.set()
        await reader.until(2)
        await telling.end()
        assert reader.told[1] == (f"more {ENOUGH}" * 3, False)

    run(story())


def test_what_could_not_be_committed_is_part_of_the_next_piece(run: Run) -> None:
    async def story() -> None:
        reader = Reader(StorageUnavailable("database or disk is full"), StorageUnavailable("database is locked"))
        telling = Pieces(reader.commit)
        telling.say("first " + ENOUGH)
        await reader.until(1)
        await telling.end()
        assert reader.told == [("first " + ENOUGH, True)] and reader.tries == 3

    run(story())


def test_a_turn_that_has_lost_its_run_finds_that_out_elsewhere(run: Run) -> None:
    async def story() -> None:
        reader = Reader(LeaseLost())
        telling = Pieces(reader.commit)
        telling.say(ENOUGH)
        await until(lambda: reader.tries > 0)
        await telling.end()

    run(story())


def test_what_nobody_expects_is_not_swallowed(run: Run) -> None:
    async def story() -> None:
        reader = Reader(ZeroDivisionError())
        telling = Pieces(reader.commit)
        telling.say(ENOUGH)
        await until(lambda: reader.tries > 0)
        with pytest.raises(ZeroDivisionError):
            await telling.end()

    run(story())


def test_an_answer_ten_times_as_long_has_far_fewer_than_ten_times_as_many_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()

    def pieces_within(seconds: float) -> int:
        count, taken = 0, pieces.pause_s(0)
        while taken < seconds:
            count, taken = count + 1, taken + pieces.pause_s(taken)
        return count

    assert pieces_within(3) == 11
    assert pieces_within(300) < 10 * pieces_within(3)
