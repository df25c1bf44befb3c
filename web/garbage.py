"""When a process looks for garbage, which is only what refers to itself: all else is gone where it is let go.

A large body is a quarter of a million lists, none of them garbage. To look through those of ten tasks takes half a second,
in which nobody can do anything. So Python's collector looks by itself at what is young alone; all the rest is looked
through here, from time to time, at a moment when nothing large is worked on.
"""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from background.large import quiet_s

YOUNG = (50_000, 1_000_000, 1_000_000)  # objects more than before; and rounds after which older ones would be looked at
EVERY_S = 10.0
ROUNDS = 10  # of the young ones, before it is worth anything
QUIET_S = 1.0
LATEST_S = 120.0


@asynccontextmanager
async def collected() -> AsyncIterator[None]:
    """Within the block garbage is looked for so, and what was loaded before is not looked through at all."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*YOUNG)
    looking = asyncio.create_task(_look())
    try:
        yield
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking


def is_due(rounds: int, quiet: float, since: float) -> bool:
    """Whether to look now: after so many rounds, so long `since` the last look, and so long without anything large (seconds)."""
    return rounds >= ROUNDS and (quiet >= QUIET_S or since >= LATEST_S)


async def _look() -> None:
    clock = asyncio.get_running_loop().time
    looked_at = clock()
    while True:
        await asyncio.sleep(EVERY_S)
        if is_due(gc.get_count()[1], quiet_s(), clock() - looked_at):
            gc.collect()
            looked_at = clock()
