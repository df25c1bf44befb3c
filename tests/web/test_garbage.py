"""A85: the garbage collector stops nobody while large values are worked on, and comes in the end."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from web import garbage


@pytest.mark.parametrize(
    ("rounds", "quiet", "since", "due"),
    [
        (3, 60, 60, False),  # next to nothing has been made: nobody is woken for it
        (10, 60, 10, True),
        (10, 0.1, 10, False),  # a megabyte is being worked on
        (10, 0.1, 120, True),  # for two minutes already, and memory is not endless
    ],
)
def test_a85_it_looks_in_a_quiet_moment_and_in_the_end_in_any(
    rounds: int, quiet: float, since: float, due: bool
) -> None:
    assert garbage.is_due(rounds, quiet, since) is due


class Ring:
    """What refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def as_before() -> Iterator[None]:
    """The collector is everybody's: it gets its thresholds back."""
    given = gc.get_threshold()
    yield
    gc.set_threshold(*given)
    gc.unfreeze()


@pytest.mark.usefixtures("as_before")
def test_what_refers_to_itself_is_gone_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "EVERY_S", 0.01)
    monkeypatch.setattr(garbage, "ROUNDS", 0)

    async def story() -> None:
        gone = asyncio.Event()
        async with garbage.collected(), asyncio.timeout(10):
            weakref.finalize(Ring(), gone.set)
            await gone.wait()

    asyncio.run(story())
