"""Large values: what counts as one, and how they are worked on so that the event loop has its turn in between.

Whoever parses or writes a megabyte of JSON holds Python's lock until that is done, in whatever thread it is. So what can
wait is done in one thread, one after the other, and of such pieces no two compete with the event loop at once.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

T = TypeVar("T")

LARGE = 32_768  # bytes or characters; what is smaller is done before a thread would have begun
ITEMS = 2_000

_thread = ThreadPoolExecutor(1, "outrider-large")
_piece = threading.Lock()
_worked_at = 0.0  # on the monotonic clock


async def one_by_one(function: Callable[..., T], *given: Any) -> T:
    """What the function returns, or raises; it runs when those are done that were asked for before."""
    return await asyncio.get_running_loop().run_in_executor(_thread, function, *given)


def piece(large: bool) -> AbstractContextManager[Any]:
    """Around work that holds Python's lock in one piece: of all that is large, one at a time. Never around a transaction."""
    if not large:
        return nullcontext()
    global _worked_at
    _worked_at = time.monotonic()
    return _piece


def quiet_s() -> float:
    """For how long nothing large has been begun, in seconds."""
    return time.monotonic() - _worked_at


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
