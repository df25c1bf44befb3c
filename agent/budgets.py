"""Budgets: how many model tokens a job may use, and all jobs of a chat until its user speaks again; and what a turn owes.

They are looked at before each model call. A call is not made once what is known to be spent has reached a limit; one
that is under way is never broken off. Where the sums are kept is `expenses.py`'s.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agent.providers import after_answers
from background import sessions, tasks
from background.database import Tx
from background.job_rows import Job
from background.tasks import Task
from background.usage import Usage

REASON = "BUDGET_EXCEEDED"
OF_JOB = (
    "It has used {:,} model tokens of the {:,} that a job may use (OUTRIDER_JOB_TOKENS); the next call was not made."
)
OF_TREE = (
    "The jobs of this conversation have used {:,} model tokens of the {:,} that they may use until its user speaks again "
    "(OUTRIDER_TREE_TOKENS); the next call was not made."
)


class OverBudget(BaseException):
    """A signal: the next call is not made, and the text says why. No `Exception`, or a fallback would be asked instead."""


@dataclass(frozen=True)
class Budgets:
    """`job_tokens` for each attempt of a job; `tree_tokens` for all jobs of a chat, until its user speaks again."""

    job_tokens: int | None = None
    tree_tokens: int | None = None

    @property
    def limit(self) -> bool:
        """Whether anything is limited."""
        return self.job_tokens is not None or self.tree_tokens is not None

    def over(self, tx: Tx, task: Task, job: Job, owed: int) -> str | None:
        """Why this job makes no further call, in words; `owed` tokens are spent and not written yet. None where it may."""
        spent = tasks.usage_of(tx, task.id).tokens + owed
        if self.job_tokens is not None and spent >= self.job_tokens:
            return OF_JOB.format(spent, self.job_tokens)
        spent = sessions.tree_tokens(tx, job.session) + owed
        if self.tree_tokens is not None and spent >= self.tree_tokens:
            return OF_TREE.format(spent, self.tree_tokens)
        return None


class Tab:
    """What a turn's model calls have cost and is not written yet: it is written with the step that it was spent on."""

    def __init__(self) -> None:
        self.owed = Usage()

    def take(self) -> Usage:
        """All that is owed, for whoever writes it now."""
        taken, self.owed = self.owed, Usage()
        return taken

    def owe(self, usage: Usage) -> None:
        self.owed += usage

    @contextmanager
    def open(self) -> Iterator[None]:
        """Inside, what each request costs is owed."""
        with after_answers(self.owe):
            yield
