"""Compaction: what a model is given of a session's earlier turns. All of them while they fit; else a gist stands for the older ones.

A gist is made by a model call of the turn that needs it, before its first step, and kept at once, so that a crash does not
pay for it twice. The turns themselves, and the session's log, stay as they are.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models import Model

from agent import loop
from agent.budgets import Tab
from agent.condensing import MOST_JOBS, extract, in_place, instructions, rendered, to_condense, told_in
from agent.loop import answer_text, calls_of, user_message
from agent.notifications import excerpt, harmless
from agent.taking_up import Turn
from agent.windows import BYTES, Window, tokens_of
from background import checkpoints, earlier, expenses, gists, queue, tasks
from background.database import Database, Tx
from background.earlier import Past
from background.errors import LeaseLost
from background.gists import Gist
from background.queue import Run
from background.tasks import Task
from background.text import clean
from background.usage import Usage

CLOSER = "closer"  # the checkpoint of a turn whose model could not take all that it was given
PAST_TURNS = 50  # that a model is given whole, at most
MOST_TURNS = 400  # that are looked at where there is no gist of them yet; what is older is left out
Persist = Callable[..., Awaitable[Any]]


class TooLong(Exception):
    """The model does not take so much; with less it may."""


def draw_closer(tx: Tx, run: Run) -> None:
    """From now on this turn is given half of what its model should take. Raises `LeaseLost`."""
    queue.progress(tx, run)
    checkpoints.put_beside(tx, run.task_id or "", "input", CLOSER, "true")


@dataclass(frozen=True)
class Compaction:
    """What one turn has at hand for it; `tab` is where the cost of its model calls stands, `persist` writes."""

    db: Database
    persist: Persist
    run: Run
    turn: Turn
    model: Model
    window: Window
    tab: Tab
    stall_s: float

    async def history(self, around: int) -> list[ModelMessage]:
        """The earlier turns as they fit beside `around` tokens. Raises what `loop.ask_once` raises, and `LeaseLost`."""
        gist, past, room = self.turn.gist, self.turn.past, self.window.room - around
        if self.turn.job:  # what an attempt goes on from are few turns, and is wanted whole
            return [message for each in past for message in of_attempt(each)]
        if _fits(gist, past, room):
            return _history(gist, past)
        while True:
            gist, past = await self.db.read(_remembered, self.turn)
            if not (older := past[: len(past) - _newest(past, room // 2)]):
                return _history(gist, past)
            await self._condense(gist, _first(older, self.window.tokens // 2))

    async def _condense(self, before: Gist | None, turns: Sequence[Past]) -> None:
        """Have a gist made of the one there was and the turns behind it, and keep it."""
        limit = self.window.tokens // 8 * BYTES
        texts = [text for each in turns if (text := rendered(messages_of(each)))]
        most = self.window.tokens * BYTES // 2 // max(1, len(texts))
        said = before.text if before else ""
        if texts:
            shortened = [_shortened(text, most) for text in texts]
            said = await self._asked(said, shortened, limit) or extract(said, shortened, limit)
        told = [*(before.told if before else ()), *told_in([m for each in turns for m in messages_of(each)])]
        made = Gist(turns[-1].id, turns[-1].ended_at, tuple(dict.fromkeys(told))[-MOST_JOBS:], excerpt(said, limit))
        owed = self.tab.take()
        try:
            await self.persist(_keep, self.run, self.turn.task, before, turns, made, owed)
        except (LeaseLost, Exception):
            self.tab.owe(owed)  # it was spent all the same
            raise

    async def _asked(self, before: str, texts: Sequence[str], limit: int) -> str:
        """A gist by the model; nothing where it would not make one."""
        answer = await loop.ask_once(self.model, instructions(limit), to_condense(before, texts), self.stall_s)
        return "" if answer.finish_reason in ("content_filter", "error") else clean(answer_text(answer)).strip()


def _remembered(tx: Tx, turn: Turn) -> tuple[Gist | None, list[Past]]:
    """The session's gist, and all the turns behind it."""
    gist = gists.of(tx, turn.task.session)
    after = (gist.upto_at, gist.upto) if gist else (0, "")
    return gist, earlier.turns(tx, turn.task.session, turn.task.id, MOST_TURNS, after)


def _keep(tx: Tx, run: Run, task: Task, before: Gist | None, turns: Sequence[Past], made: Gist, owed: Usage) -> None:
    """Keep it, unless something that went into it has been erased or lowered meanwhile: then it is to be made anew."""
    queue.progress(tx, run)
    expenses.charge(tx, task, owed, "compaction")
    after = (before.upto_at, before.upto) if before else (0, "")
    found = earlier.turns(tx, task.session, task.id, MOST_TURNS, after)
    if gists.of(tx, task.session) == before and found[: len(turns)] == list(turns):
        gists.put(tx, task.session, task.id, made, tasks.ceiling_of(tx, task.id))


def _fits(gist: Gist | None, past: Sequence[Past], room: int) -> bool:
    return len(past) <= PAST_TURNS and tokens_of(_history(gist, past)) <= room


def _newest(past: Sequence[Past], room: int) -> int:
    """How many of the newest turns stay whole."""
    kept = 0
    for each in reversed(past):
        room -= tokens_of(messages_of(each))
        if room < 0 or kept == PAST_TURNS // 2:
            break
        kept += 1
    return kept


def _first(past: Sequence[Past], tokens: int) -> Sequence[Past]:
    """The oldest turns that go into one request, and one at least."""
    for place, each in enumerate(past):
        tokens -= tokens_of(messages_of(each))
        if tokens < 0:
            return past[: max(1, place)]
    return past


def _shortened(text: str, limit: int) -> str:
    """A turn's text with its middle left out where it alone would be too long."""
    return text if len(text) <= limit else f"{text[: limit // 2]}\n…\n{text[-(limit // 2) :]}"


def _history(gist: Gist | None, past: Sequence[Past]) -> list[ModelMessage]:
    older = in_place(gist.text, gist.told) if gist and (gist.text or gist.told) else []
    return [*older, *(message for each in past for message in messages_of(each))]


def messages_of(past: Past) -> list[ModelMessage]:
    """An earlier turn as the model saw it; one that did not complete, as what was asked and how it ended."""
    if past.transcript and past.state == "completed":
        return loop.load(past.transcript)
    note = f"(This turn {past.state}: {past.detail or past.state})"
    if past.text is not None and past.state != "completed":
        return [user_message(harmless(past.text)), ModelResponse(parts=[TextPart(note)])]
    return []


def of_attempt(past: Past) -> list[ModelMessage]:
    """An earlier attempt of a job as its worker saw it, also where it did not complete; without calls nobody answered."""
    messages = loop.load(past.transcript or "[]")
    if past.state == "completed" or not messages:
        return messages
    note = TextPart(f"(This attempt {past.state}: {past.detail or past.state})")
    last = messages[-1]
    if isinstance(last, ModelResponse):
        open_calls = calls_of(last)
        kept = [part for part in last.parts if part not in open_calls]
        return [*messages[:-1], replace(last, parts=[*kept, note])]
    return [*messages, ModelResponse(parts=[note])]
