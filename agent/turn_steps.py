"""What a turn keeps as it comes along: its model's answers, its tools' results, what they cost, and what is said live.

The loop calls it between steps; how a turn begins and ends is `turns.py`'s.
"""

import logging
from collections.abc import Collection, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from agent import loop, taking_up
from agent.budgets import OverBudget, Tab
from agent.facts import facts_of
from agent.means import Means
from agent.offers import Offer
from agent.pieces import Pieces
from agent.providers import providers_of
from agent.taking_up import Turn
from background import beforehand, checkpoints, expenses, masked, memory_uses, tasks, terminal
from background.ceilings import can_keep, strictest
from background.database import Tx
from background.errors import LeaseLost
from background.memory_uses import Use
from background.queue import Run
from background.tasks import Task
from background.usage import Usage

log = logging.getLogger(__name__)


class Steps:
    """Keeps a turn's steps in its checkpoints."""

    def __init__(self, means: Means, run: Run, turn: Turn, offer: Offer) -> None:
        self._means, self._run, self._turn = means, run, turn
        self._level = turn.task.ceiling
        self._providers = set[str]()  # that this turn has asked
        asked = providers_of(offer.model or means.model)
        # What was said live cannot be taken back: not where a provider that may be asked could make it sink.
        self._aloud = not offer.holds_back and all(means.levels.get(name, "full") == "full" for name in asked)
        self.pieces = Pieces(self._commit)
        self.stored = turn.stored
        self.tab = Tab()
        self.below = Usage()  # what subagents in the foreground have cost since the last step
        self.uses: list[tuple[str, Use]] = []  # items of memory that its model was given, not noted yet

    @property
    def quotes(self) -> bool:
        """Whether others than its user may be told in its words what went wrong."""
        return self._level == "full" and not self._turn.task.incognito

    async def ask(self, provider: str) -> None:
        """A request to this provider is about to be made: budgets and its level have their say.

        Raises `OverBudget`, and `LeaseLost` where the level is the task's end.
        """
        await self._require_budget()
        self._providers.add(provider)
        await self.sink(self._means.levels.get(provider, "full"), f"at the provider {provider}")

    async def sink(self, level: str, where: str) -> None:
        """No more is kept of the turn than this level allows. Raises `LeaseLost` where that is the task's end."""
        if strictest(level, self._level) == self._level:
            return
        self._level = await self._means.persist(terminal.lower, self._run, level)
        if not can_keep(self._level):
            log.info("task %s failed: %s %s", self._run.task_id, terminal.NOT_KEPT_REASON, where)
            raise LeaseLost

    async def _require_budget(self) -> None:
        job, limits = self._turn.job, self._means.budgets
        if job is not None and limits.limit:
            why = await self._means.db.read(limits.over, self._turn.task, job, self.tab.owed.tokens)
            if why:
                raise OverBudget(why)

    async def keep_answer(self, number: int, messages: str) -> Collection[int]:
        await self.pieces.end()
        facts, owed = facts_of(loop.load(messages), self._providers, self.below), self.tab.take()
        self.below = Usage()
        try:
            async with self._masked(messages):
                self._level, altered = await self._means.persist(
                    _keep_answer, self._run, self._turn.task, number, messages, facts, owed, self.uses_to_note()
                )
        except (LeaseLost, Exception):
            self.tab.owe(owed)  # it was spent all the same
            raise
        return altered

    def uses_to_note(self) -> tuple[tuple[str, Use], ...]:
        """What is to be noted with the step that is kept now."""
        taken = tuple(self.uses)
        self.uses.clear()
        return taken

    async def begin_call(self, key: str, name: str) -> None:
        await self._means.persist(checkpoints.begin_call, self._run, key, name)

    async def keep_tool_result(self, name: str, result: str) -> None:
        async with self._masked(result):
            self._level = await self._means.persist(
                _keep_result, self._run, self._turn.task, name, result, self.uses_to_note()
            )

    def _masked(self, step: str) -> AbstractAsyncContextManager[None]:
        return beforehand.masked(self._means.db, lambda tx: tasks.ceiling_of(tx, self._turn.task.id), trees=[step])

    async def take_up(self, number: int) -> list[str]:
        if not await self._means.db.read(taking_up.something_waits, self._turn.task):
            return []
        return await self._means.db.write(taking_up.take_up, self._run, number, self._means.shape)

    def say(self, text: str) -> None:
        if self._aloud and self._level == "full":
            self._means.say(self._turn, text)
            if self._turn.task.origin == "user":  # of other turns nobody reads a stream
                self.pieces.say(text)

    async def _commit(self, piece: str, anew: bool) -> None:
        await self._means.db.write(partial(tasks.fragment, anew=anew), self._run, piece)


class Counted(loop.Unkept):
    """The steps of a subagent in the foreground: what they cost is its turn's, also where it is run again from its start."""

    def __init__(self, means: Means, turn: Turn, steps: "Steps") -> None:
        self._means, self._turn, self._steps = means, turn, steps

    async def keep_answer(self, number: int, messages: str) -> Collection[int]:
        owed = self._steps.tab.take()
        self._steps.below += owed
        await self._means.persist(expenses.charge, self._turn.task, owed)
        return ()


def _keep_answer(
    tx: Tx,
    run: Run,
    task: Task,
    number: int,
    messages: str,
    facts: dict[str, Any],
    owed: Usage,
    uses: Iterable[tuple[str, Use]],
) -> tuple[str, Collection[int]]:
    """The level at which it was kept, and the places of its calls that are not kept as they are."""
    level = tasks.checkpoint(tx, run, f"{masked.ANSWER}{number}", messages, facts)
    expenses.charge(tx, task, owed)
    memory_uses.note(tx, task.id, task.session, uses)
    return level, masked.kept_of(tx, run.task_id or "", number)


def _keep_result(tx: Tx, run: Run, task: Task, name: str, result: str, uses: Iterable[tuple[str, Use]]) -> str:
    """The level at which it was kept."""
    level = tasks.checkpoint(tx, run, name, result)
    memory_uses.note(tx, task.id, task.session, uses)
    return level
