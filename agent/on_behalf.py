"""For whom code acts that is not told: the owner of the turn that it runs in, and its job; outside a turn the operator.

It is a variable of the context, so what a turn awaits, or starts in a thread, acts for its owner too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

OPERATOR = "local"
_owner: ContextVar[str] = ContextVar("owner", default=OPERATOR)
_plugin: ContextVar[str | None] = ContextVar("plugin", default=None)
_job: ContextVar[str | None] = ContextVar("job", default=None)


def owner_now() -> str:
    """For whom the caller acts."""
    return _owner.get()


def plugin_now() -> str | None:
    """The plugin whose code the caller is; None for what is no plugin's."""
    return _plugin.get()


@contextmanager
def as_plugin(name: str | None) -> Iterator[None]:
    """What runs in this block is this plugin's code."""
    token = _plugin.set(name)
    try:
        yield
    finally:
        _plugin.reset(token)


def job_now() -> str | None:
    """The job in whose turn the caller runs; None in a chat's, and outside a turn."""
    return _job.get()


@contextmanager
def on_behalf_of(owner: str, job: str | None = None) -> Iterator[None]:
    """What runs in this block acts for `owner`, in the turn of this job."""
    token, of_job = _owner.set(owner), _job.set(job)
    try:
        yield
    finally:
        _job.reset(of_job)
        _owner.reset(token)
