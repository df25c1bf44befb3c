"""The faults that a caller can be told, and the signal that is no error.

A fault carries a sentence for the person who gets it; the doors map its kind to their own codes. A signal is no
`Exception`, so that a broad `except` in a tool or a plugin cannot eat it.
"""

from typing import Any


class Fault(Exception):
    """What was asked cannot be done, and nothing was changed.

    `kind` is one of `KINDS`; `reason` a word of the contract, if there is one; `details` are JSON.
    """

    KINDS = ("invalid", "not_found", "conflict", "refused", "limit", "unavailable")

    def __init__(self, kind: str, message: str, *, reason: str | None = None, **details: Any) -> None:
        assert kind in self.KINDS, kind
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.reason = reason
        self.details = details


def not_found(what: str) -> Fault:
    """The one answer for what is not there and for what is another's."""
    return Fault("not_found", f"There is no such {what}.")


class StorageUnavailable(Exception):
    """The registry cannot be written or read now (disk full, locked, I/O error); trying again later may help."""


class UnusableDatabase(Exception):
    """The file cannot be opened as a registry: damaged, or of a newer version. The text is one line for an operator."""


class NewerDatabase(UnusableDatabase):
    """The data folder was written by a newer version."""


class Unsealable(Exception):
    """A sealed cell was altered or moved, or its key is not there. The text names the place, never what stands in it."""


class LeaseLost(BaseException):
    """A signal: this attempt is over, another has the run or the task has ended. Nothing more may be written."""


class Unread(BaseException):
    """A signal: a message to the task has come that it has not taken up, so it does not end yet. Nothing was written."""


class TryAgain(Exception):
    """A handler could not do its work now: give the run back to the queue, for in `after_s` seconds."""

    def __init__(self, after_s: float, why: str) -> None:
        super().__init__(why)
        self.after_s = after_s
