"""Large values: what counts as one, and the one thread of this process in which they are worked on, one after the other.

Whoever parses or writes a megabyte of JSON holds Python's lock meanwhile. In a thread the event loop waits for one such
piece at a time; with ten of them in ten threads it would get a turn after each of the ten.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

LARGE = 32_768  # bytes or characters; what is smaller is done before a thread would have begun
ITEMS = 2_000

_thread = ThreadPoolExecutor(1, "outrider-large")


async def one_by_one(function: Callable[..., T], *given: Any) -> T:
    """What the function returns, or raises; it runs when those are done that were asked for before."""
    return await asyncio.get_running_loop().run_in_executor(_thread, function, *given)


def is_large(value: Any) -> bool:
    """Whether a tree of JSON takes long to write. Looks no further than it must to know."""
    chars, items, waiting = 0, 0, [value]
    while waiting and chars <= LARGE and items <= ITEMS:
        inner = waiting.pop()
        if isinstance(inner, str):
            chars += len(inner)
        elif isinstance(inner, dict | list):
            items += len(inner)
            if items <= ITEMS:
                waiting += inner.values() if isinstance(inner, dict) else inner
    return chars > LARGE or items > ITEMS
