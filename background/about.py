"""Which ids a line of the log is about, whoever writes it: a grep by a job's or a task's id finds what failed on its way."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ids: ContextVar[tuple[str, ...]] = ContextVar("what is worked on", default=())


@contextmanager
def about(*ids: str | None) -> Iterator[None]:
    """Inside, what is logged is about these as well."""
    token = _ids.set((*_ids.get(), *filter(None, ids)))
    try:
        yield
    finally:
        _ids.reset(token)


def ids() -> tuple[str, ...]:
    """What is worked on here."""
    return _ids.get()
