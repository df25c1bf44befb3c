"""For whom code acts that is not told: the owner of the turn that it runs in, and outside a turn the operator.

It is a variable of the context, so what a turn awaits, or starts in a thread, acts for its owner too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

OPERATOR = "local"
_owner: ContextVar[str] = ContextVar("owner", default=OPERATOR)


def owner_now() -> str:
    """For whom the caller acts."""
    return _owner.get()


@contextmanager
def on_behalf_of(owner: str) -> Iterator[None]:
    """What runs in this block acts for `owner`."""
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)
