"""How chats become memory: the handlers of the kinds `remember`, `summary` and `harvest`.

`remember` looks which chats have fallen quiet; each then has a run of its own, with one model call. It is tried three
times and then let go, loudly; an erase takes the run with the session. Nothing is kept of what was erased, or came to be
kept at a lower level, while the model was asked.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.models import Model

from agent import loop
from agent import memory_words as words
from agent.budgets import Tab
from agent.loop import ModelCallFailed, Stalled, answer_text
from agent.providers import before_requests
from background import expenses, memories, memory_log, queue, sessions, tallies
from background.database import Database, Tx
from background.errors import TryAgain
from background.limits import SECOND
from background.memories import Memory
from background.memory_log import Chat, Said
from background.queue import Run
from background.text import clean
from background.usage import Usage
from knowledge import trust

log = logging.getLogger(__name__)

REMEMBER, SUMMARY, HARVEST = "remember", "summary", "harvest"
LOOK_EVERY_S = 60.0
AT_ONCE = 50  # chats that one look finds
TRIES = 3
PAUSES_S = (30.0, 300.0)
MOST_KNOWN = 100  # facts that a harvest is told of


class NotKept(BaseException):
    """A signal: a provider that would be asked keeps less than all. No `Exception`, or a fallback would be asked instead."""


@dataclass(frozen=True)
class Times:
    """After how many seconds of quiet a chat is summarized, and its facts are harvested."""

    summary_s: float
    harvest_s: float


@dataclass(frozen=True)
class Material:
    """What goes into one request: `known` is the summary there was, or the facts that are known."""

    chat: Chat
    known: list[Memory]
    said: list[Said]

    @property
    def upto(self) -> int:
        return self.said[-1].id

    @property
    def tier(self) -> int:
        return trust.lowest(trust.AGENT, self.chat.made_of) or trust.AGENT


@dataclass(frozen=True)
class Remembering:
    """The handlers. `times` None: nothing is remembered."""

    db: Database
    model: Model
    times: Times | None
    levels: dict[str, str] = field(default_factory=dict)  # of providers: the most that is kept of theirs
    stall_s: float = 300

    async def remember(self, run: Run) -> None:
        """Look which chats have fallen quiet, and again in a minute."""
        await self.db.write(_look, run, self.times)

    async def summary(self, run: Run) -> None:
        """Summarize a chat."""
        await self._make(run, _to_summarize)

    async def harvest(self, run: Run) -> None:
        """Harvest facts about its user from a chat."""
        await self._make(run, _to_harvest)

    async def _make(self, run: Run, find: Any) -> None:
        if run.tries > TRIES:  # its worker stopped, or something broke that no further try mends
            await self._give_up(run, "it came to no end")
            return
        material = await self.db.read(find, run.params["session"]) if self.times else None
        if material is None:
            await self.db.write(_finish, run)
            return
        tab = Tab()
        try:
            with before_requests(self._ask), tab.open():
                answer = await self._asked(run.kind, material)
        except NotKept:
            log.info("the model's provider keeps less than all: no %s is made", run.kind)
            answer = ""
        except (ModelCallFailed, Stalled) as error:
            await self._failed(run, error.__cause__ or error, tab.take())
            return
        await self.db.write(_keep, run, find, material, answer, tab.take())

    async def _ask(self, provider: str) -> None:
        if self.levels.get(provider, "full") != "full":
            raise NotKept

    async def _asked(self, kind: str, material: Material) -> str:
        if kind == SUMMARY:
            told, asked = words.SUMMARY, words.for_summary(next(iter(material.known), None), material.said)
        else:
            told, asked = words.FACTS, words.for_facts(material.known, material.said)
        answer = await loop.ask_once(self.model, told, asked, self.stall_s)
        return "" if answer.finish_reason in ("content_filter", "error") else clean(answer_text(answer))

    async def _failed(self, run: Run, error: BaseException, owed: Usage) -> None:
        """Another try, or none. Raises `TryAgain`."""
        await self.db.write(_count, run, owed)
        why = type(error).__name__  # its words may quote what was said
        if run.tries < TRIES:
            raise TryAgain(PAUSES_S[run.tries - 1], why)
        await self._give_up(run, why)

    async def _give_up(self, run: Run, why: str) -> None:
        log.error("%s of session %s is given up after %s tries: %s", run.kind, run.params["session"], TRIES, why)
        await self.db.write(_let_go, run)


def start_remembering(tx: Tx, times: Times | None) -> None:
    """The one look of this registry is in the queue, whoever put it there. What was quiet before the first is not looked at.

    What is to be harvested is in the queue before a purge could take it, also where nobody has looked for long.
    """
    since = {SUMMARY: tx.now, HARVEST: tx.now}
    if not queue.enqueue(tx, REMEMBER, REMEMBER, params=since) and times:
        _quiet(tx, HARVEST, (queue.params_of(tx, REMEMBER) or since)[HARVEST], times)


def _look(tx: Tx, run: Run, times: Times | None) -> None:
    marks = {kind: _quiet(tx, kind, run.params[kind], times) if times else tx.now for kind in (SUMMARY, HARVEST)}
    queue.reduce(tx, run, marks)
    queue.release(tx, run, due_at=tx.now + int(LOOK_EVERY_S * SECOND), counts=False)


def _quiet(tx: Tx, kind: str, since: int, times: Times) -> int:
    """Put into the queue what is to be made of chats that have fallen quiet since. Returns up to when it has looked."""
    until = tx.now - int((times.summary_s if kind == SUMMARY else times.harvest_s) * SECOND)
    found = memory_log.quiet(tx, since, until, AT_ONCE)
    for session, last in found:
        memories.enqueue(tx, kind, session, last)
    if len(found) == AT_ONCE:
        return found[-1][1]
    return max(since, until)


def _to_summarize(tx: Tx, uid: str) -> Material | None:
    """What was said since the last summary; None where there is nothing to summarize."""
    chat = memory_log.chat(tx, uid)
    if chat is None:
        return None
    before = memories.summary_of(tx, chat.owner, uid)
    said = memory_log.to_remember(tx, uid, before.upto if before else 0)
    return Material(chat, [before] if before else [], said) if _speaks(said) else None


def _to_harvest(tx: Tx, uid: str) -> Material | None:
    """The user's own words since the last harvest; None where there are none."""
    chat = memory_log.chat(tx, uid)
    if chat is None:
        return None
    said = [each for each in memory_log.to_remember(tx, uid, sessions.harvested(tx, uid)) if each.who == "user"]
    return Material(chat, memories.facts_of(tx, chat.owner, MOST_KNOWN), said) if said else None


def _speaks(said: Sequence[Said]) -> bool:
    return any(each.who != "outrider" for each in said)


def _keep(tx: Tx, run: Run, find: Any, material: Material, answer: str, owed: Usage) -> None:
    """Keep what came of it. Raises `TryAgain` where something that went into it is gone by now."""
    if not queue.finish(tx, run):
        return
    expenses.charge_memory(tx, material.chat.uid, owed)
    now = find(tx, material.chat.uid)
    if now is None or not _still_said(material, now):
        raise TryAgain(0, "something was erased, or is kept at a lower level by now")
    chat, kind = material.chat, "summary" if run.kind == SUMMARY else "fact"
    if run.kind == SUMMARY and (text := words.summary(answer)):
        memories.supersede(tx, chat.owner, [each.id for each in material.known])
        memories.keep(tx, chat.owner, chat.uid, kind, text, material.tier, material.upto)
    for text, replaced in words.facts(answer, material.known, now.known) if run.kind == HARVEST else ():
        memories.supersede(tx, chat.owner, replaced)
        memories.keep(tx, chat.owner, chat.uid, kind, text, trust.AGENT, material.upto)
    if run.kind == HARVEST:
        sessions.harvest(tx, chat.uid, material.upto)
    queue.hasten(tx, "purge")  # what was kept for it need not be any more


def _still_said(material: Material, now: Material) -> bool:
    """Whether all that was said then is still kept; what has been said since is for the next time."""
    summarized = [each.id for each in material.known if each.kind == SUMMARY]
    there = [each.id for each in now.known if each.kind == SUMMARY]
    return now.said[: len(material.said)] == material.said and summarized == there


def _finish(tx: Tx, run: Run) -> None:
    if queue.finish(tx, run):
        queue.hasten(tx, "purge")


def _let_go(tx: Tx, run: Run) -> None:
    if queue.finish(tx, run, "failed"):
        queue.hasten(tx, "purge")


def _count(tx: Tx, run: Run, owed: Usage) -> None:
    tallies.add(tx, "memory_failures", run.kind)
    expenses.charge_memory(tx, run.params["session"], owed)
