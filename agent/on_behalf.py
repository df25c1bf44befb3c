"""For whom code acts that is not told: the owner of the turn that it runs in, and its job; outside a turn the operator.
What is done in an incognito turn is incognito.

It is a variable of the context, so what a turn awaits, or starts in a thread, acts for its owner too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

OPERATOR = "local"
_owner: ContextVar[str] = ContextVar("owner", default=OPERATOR)
_plugin: ContextVar[str | None] = ContextVar("plugin", default=None)
_job: ContextVar[str | None] = ContextVar("job", default=None)
_turn: ContextVar[str | None] = ContextVar("turn", default=None)
_incognito: ContextVar[bool] = ContextVar("incognito", default=False)


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


def turn_now() -> str | None:
    """The turn that the caller runs in, by its task's id; None outside a turn."""
    return _turn.get()


def incognito_now() -> bool:
    """Whether the caller runs in a turn of an incognito session."""
    return _incognito.get()


@contextmanager
def on_behalf_of(
    owner: str, job: str | None = None, *, incognito: bool = False, turn: str | None = None
) -> Iterator[None]:
    """What runs in this block acts for `owner`, in this turn, which may be a job's."""
    token, of_job, quiet, within = _owner.set(owner), _job.set(job), _incognito.set(incognito), _turn.set(turn)
    try:
        yield
    finally:
        _turn.reset(within)
        _incognito.reset(quiet)
        _job.reset(of_job)
        _owner.reset(token)
