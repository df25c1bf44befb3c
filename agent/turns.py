"""The turn's handler: chat turns and jobs alike are begun, driven and settled here. There is no other turn driver.

It decides how a turn ended, in the words of the contract; what must follow from an end is `terminal.settle`'s.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial

from pydantic_ai.exceptions import AgentRunError

from agent import budgets, handling, loop, taking_up, tracing
from agent.at_hand import AtHand, at_hand
from agent.budgets import OverBudget
from agent.compaction import CLOSER, PAST_TURNS, Compaction, TooLong, draw_closer
from agent.desk import Desk, Foreground, Refuses
from agent.endings import LoopGaveUp, artifact, cut_short, ended_early, failed, plain_note, report_of
from agent.loop import ModelCallFailed, Progress, user_message
from agent.means import Means
from agent.memory_giving import given_to
from agent.models import classify, is_too_long
from agent.notifications import excerpt, harmless
from agent.offers import Offer, gone
from agent.on_behalf import on_behalf_of
from agent.outstanding import outstanding
from agent.providers import before_requests
from agent.release import may_ask, released
from agent.subagents import UnknownSubagent, worker_instructions
from agent.taking_up import Turn
from agent.tools import toolset
from agent.tools_to_send import NONE_BELOW
from agent.turn_steps import Counted, Steps
from agent.windows import Window, known_tools, tokens_in, tokens_of, tokens_of_tools, window_of
from background import delivery, expenses, follow_ups, memory_uses, queue, tasks, terminal
from background.about import about
from background.beforehand import masked
from background.database import Tx
from background.errors import StorageUnavailable, TryAgain, Unread
from background.jobs import Spec
from background.limits import SECOND
from background.memory_uses import BEGIN, Use
from background.questions import Parks, Question
from background.queue import Run
from background.terminal import Outcome
from background.usage import Usage
from background.worker import backoff

log = logging.getLogger(__name__)

LONGEST_RETRY_AFTER_S = 3600.0
TOO_LONG = "It is too long for its model, also with all cut that can be."


class Turns(Means):
    """The handler of the kinds `turn` and `job`."""

    def begin(self, tx: Tx, run: Run) -> tuple[Run, Turn]:
        """How a run of the kinds `turn` and `job` begins, or goes on."""
        answered_by_models = [name for name, offer in self.offers.items() if offer.by_model]
        return run, taking_up.begin(tx, run, self.shape, PAST_TURNS + 1, answered_by_models)

    async def run(self, begun: tuple[Run, Turn]) -> None:
        """The handler of the kinds `turn` and `job`."""
        run, turn = begun
        offer = self.offers.get(turn.task.profile) or gone(turn.task.profile)
        with (
            on_behalf_of(turn.task.owner, turn.job and turn.job.id, incognito=turn.task.incognito, turn=turn.task.id),
            about(turn.job and turn.job.id),
        ):
            if turn.task.origin != "user":
                log.info("task %s begins or goes on, attempt %s of run %s", turn.task.id, run.attempt, run.id)
            name, traced = await self._traced(turn)
            with tracing.of_jobs(name, traced, task_id=turn.task.id, attempt=run.attempt):
                while not await self._ended(run, turn, offer):
                    turn = await self.db.write(taking_up.reopen, run, turn, self.shape)
            if turn.job is None and offer.by_model:
                await self._log_told(turn)

    async def _traced(self, turn: Turn) -> tuple[str, list[str]]:
        """What a trace calls it, and of which jobs it is."""
        if turn.job:
            return "run", [turn.job.id]
        if turn.task.origin == "user":
            return "turn", []
        return "briefing", await self.db.read(delivery.attached_to, turn.task.id)

    async def _log_told(self, turn: Turn) -> None:
        if told := await self.db.read(delivery.delivered_by, turn.task.id):
            log.info("task %s has told of %s", turn.task.id, " ".join(told))

    async def expire(self, run: Run) -> None:
        """The handler of the kind `expire`: nobody has answered a question in time."""
        await self.db.write(_expire, run)

    async def _ended(self, run: Run, turn: Turn, offer: Offer) -> bool:
        """Work until the task has ended or is parked; False where it goes on: a message came to it that it has not taken up,
        or its model could not take all that it was given.
        """
        steps = Steps(self, run, turn, offer)
        try:
            outcome = await self._paid(run, turn, offer, steps)
        except Parks as parks:
            refused = await may_ask(offer, self.plugins, turn.task.id, parks.question)
            if refused is None:
                await self.persist(_park, run, parks.question, self.bounds.job_timeout_s if turn.job else None)
                return True
            outcome = refused
        except TooLong:
            await self.persist(draw_closer, run)
            return False
        outcome = await released(offer, self.plugins, turn.task.id, outcome, report=turn.job is not None)
        keep = not (offer.guarded and outcome.state == "failed")
        try:
            await self._settle(run, self._with_excerpt(outcome), keep=keep, quote=steps.quotes)
        except Unread:
            return False
        return True

    async def _paid(self, run: Run, turn: Turn, offer: Offer, steps: Steps) -> Outcome:
        """Work, and whatever comes of it, what it has cost is put to its account."""
        try:
            with before_requests(steps.ask), steps.tab.open():
                return await self._work(run, turn, offer, steps)
        finally:
            if steps.tab.owed != Usage():  # of a call that broke off
                try:
                    await self.db.write(expenses.charge, turn.task, steps.tab.take())
                except StorageUnavailable as error:
                    log.warning("what task %s has cost could not be kept whole: %s", turn.task.id, error)
            if steps.uses:  # of a request without an answer
                await self.db.write(_note, turn, steps.uses_to_note())

    async def _work(self, run: Run, turn: Turn, offer: Offer, steps: Steps) -> Outcome:
        if turn.nothing_to_tell:
            return Outcome("completed")
        if offer.broken:
            return Outcome("failed", reason="INTERRUPTED", detail=f"Its profile takes no work now: {offer.broken}.")
        if offer.handler:
            limit = self._limit_s(turn)
            if not offer.handler.stoppable:
                await steps.begin_call(f"handled:{len(turn.contents) - 1}", offer.handler.name)
            pieces = None if offer.holds_back else self._committing(run)
            holding = handling.Holding(turn.stored, pieces, partial(self._keep_step, run))
            return await handling.handle(turn, offer, offer.handler, holding, self._left_s(run, turn), limit)
        if turn.job and turn.job.follow_up and not turn.past:
            return Outcome("failed", reason="INTERRUPTED", detail=follow_ups.GONE)
        return await self._think(run, turn, offer, steps)

    async def _keep_step(self, run: Run, name: str, content: str) -> None:
        await self.persist(tasks.checkpoint, run, name, content)

    def _committing(self, run: Run) -> Callable[[str], Awaitable[None]]:
        """Commits pieces of an answer; the first takes the place of what an earlier try has told."""
        first = iter((True,))

        async def commit(text: str) -> None:
            await self.persist(partial(tasks.fragment, anew=next(first, False)), run, text)

        return commit

    async def _think(self, run: Run, turn: Turn, offer: Offer, steps: Steps) -> Outcome:
        progress = Progress([], loop.kept_of(turn.stored))
        try:
            await self._drive(run, turn, offer, progress, steps)
        except ModelCallFailed as error:
            cause = error.__cause__ or error
            if is_too_long(cause) and CLOSER not in turn.stored:
                raise TooLong from error
            return await self._after_failure(run, progress, cause, steps.quotes)
        except AgentRunError as error:
            return failed(progress, "MODEL_FAILED", classify(error, quote=steps.quotes).message)
        except UnknownSubagent as error:
            return failed(progress, "UNKNOWN_SUBAGENT", str(error))
        except LoopGaveUp as error:
            return failed(progress, *cut_short(error, progress, self.bounds.stall_s, self.db.now()))
        except OverBudget as over:
            return failed(progress, budgets.REASON, str(over))
        except TimeoutError:
            return failed(progress, "TIMED_OUT", f"It ran longer than {self._limit_s(turn):g} s.")
        finally:
            await steps.pieces.end()
        return await self._completed(turn, progress)

    async def _drive(self, run: Run, turn: Turn, offer: Offer, progress: Progress, steps: Steps) -> None:
        names, instructions, parks = offer.tools, offer.instructions, True
        if turn.job:
            kind = self.plugins.registry.get(turn.job.subagent_type)
            names, parks = turn.job.tools, kind.parks
            instructions = offer.beside(kind, worker_instructions(kind, turn.job.follow_up))
        instructions = "\n\n".join(filter(None, (instructions, outstanding(turn.out))))
        hand = await at_hand(self.plugins, self.servers, names)
        instructions = hand.told(instructions)
        desk = self._desk(run, turn, progress, hand, lambda specs: self._side_by_side(run, turn, offer, steps, specs))
        tools, window = toolset(replace(desk, uses=steps.uses), hand.names), self._window(turn, offer)
        opening = user_message(*await self._given(turn, hand.names, steps), *turn.texts)
        around = tokens_in(instructions) + tokens_of_tools(known_tools(tools))
        async with asyncio.timeout(self._left_s(run, turn)):
            past = self._compaction(run, turn, offer, steps, window)
            progress.history = await past.history(around + tokens_of([opening, *progress.turn]))
            await loop.drive(
                offer.model or self.model,
                instructions,
                tools,
                progress,
                opening,
                steps,
                self.bounds.stall_s,
                hand.gates(parks=parks),
                window.room,
            )

    async def _given(self, turn: Turn, names: tuple[str, ...], steps: Steps) -> list[str]:
        """What a turn is given of memory by itself."""
        kind = self.plugins.registry.get(turn.job.subagent_type) if turn.job else None
        found = await given_to(self.db, turn, names, kind) if self.remembers else None
        if found is None:
            return []
        steps.uses.extend((BEGIN, use) for use in found.uses)
        return [found.text]

    def _window(self, turn: Turn, offer: Offer) -> Window:
        """What its model takes at once; half of that, once it has refused what should have fitted."""
        window = window_of(offer.model or self.model, self.context_tokens)
        return window.half if CLOSER in turn.stored else window

    def _compaction(self, run: Run, turn: Turn, offer: Offer, steps: Steps, window: Window) -> Compaction:
        model = offer.model or self.model
        return Compaction(self.db, self.persist, run, turn, model, window, steps.tab, self.bounds.stall_s)

    def _desk(
        self, run: Run, turn: Turn, progress: Progress, hand: AtHand, foreground: Foreground, *, sends: bool = True
    ) -> Desk:
        return Desk(
            db=self.db,
            knowledge=self.knowledge,
            registry=self.plugins.registry,
            added={name: added.tool for name, added in hand.added.items()},
            external=hand.external,
            pages=self.pages,
            sources=self.sources,
            run=run,
            task=turn.task,
            session=turn.session,
            step=lambda: len(progress.answers),
            foreground=foreground,
            refuses=self._refusing(turn),
            job=turn.job,
            sends=sends,
        )

    def _refusing(self, turn: Turn) -> Refuses | None:
        """The output guard, for what a turn sends out before its end; None where it has none."""
        name = turn.task.profile
        offer = self.offers.get(name)
        return (lambda text: self.plugins.refuses(text, name, turn.task.id)) if offer and offer.guarded else None

    def _limit_s(self, turn: Turn) -> float:
        return self.bounds.job_timeout_s if turn.job else self.bounds.turn_timeout_s

    def _left_s(self, run: Run, turn: Turn) -> float:
        return max(0.0, self._limit_s(turn) - run.spent / SECOND)

    async def _after_failure(self, run: Run, progress: Progress, error: BaseException, quote: bool) -> Outcome:
        """A model call failed: another try, if one may help and there is one left, else the end. Raises `TryAgain`."""
        if isinstance(error, StorageUnavailable):
            raise error
        failure = classify(error, quote=quote)
        tries = await self.db.read(queue.tries, run)
        if failure.transient and tries < self.db.limits.max_attempts:
            asked = min(failure.retry_after_s or 0.0, LONGEST_RETRY_AFTER_S)
            raise TryAgain(max(asked, backoff(tries)), failure.message)
        told = f"{TOO_LONG} {failure.message}" if is_too_long(error) else failure.message
        return failed(progress, "MODEL_FAILED", told)

    async def _completed(self, turn: Turn, progress: Progress) -> Outcome:
        if turn.job and not progress.final_texts:
            return failed(progress, "NO_REPORT", "The worker ended without a report.")
        said = [report_of(progress)] if turn.job else progress.final_texts
        if not (said := said or await self.db.read(plain_note, turn.task.id)):
            return failed(progress, "NO_REPORT", "The model gave no answer.")
        return Outcome(
            "completed",
            [artifact(turn, [{"text": text} for text in said])],
            transcript=loop.dump(progress.turn),
        )

    def _with_excerpt(self, outcome: Outcome) -> Outcome:
        text = (
            "".join(part.get("text", "") for artifact in outcome.artifacts for part in artifact["parts"])
            or outcome.partial
            or ""
        )
        shorten = partial(excerpt, limit=self.shape.excerpt_chars)
        return replace(outcome, excerpt=shorten(text), shorten=shorten)

    async def _settle(self, run: Run, outcome: Outcome, *, keep: bool, quote: bool) -> None:
        """End the turn; a result that cannot be stored, while the rest can, fails it. `keep`: its steps may stay.

        `quote`: the log may have the words of a failure.
        """
        settle = terminal.settle if keep else _settle_without_steps
        try:
            level = partial(tasks.ceiling_of, task_id=run.task_id or "")
            trees = [outcome.artifacts, outcome.transcript]
            async with masked(self.db, level, texts=[outcome.partial], trees=trees):
                await self.persist(settle, run, outcome)
            if outcome.state == "failed":
                log.info("task %s failed: %s %s", run.task_id, outcome.reason, outcome.detail if quote else "")
        except (ValueError, TypeError, sqlite3.Error) as error:
            log.warning("the result of task %s cannot be stored: %s", run.task_id, type(error).__name__)
            failed = Outcome("failed", reason="NO_REPORT", detail=handling.NOT_STORABLE, written=False)
            await self.persist(settle, run, failed)

    async def _side_by_side(self, run: Run, turn: Turn, offer: Offer, steps: Steps, specs: list[Spec]) -> list[str]:
        """Foreground subagents: part of one tool call, without rows of their own."""
        slots = asyncio.Semaphore(self.bounds.side_by_side)

        async def one(spec: Spec) -> str:
            async with slots:
                return await self._foreground(run, turn, offer, steps, spec)

        sent = [asyncio.create_task(one(spec)) for spec in specs]
        try:
            return list(await asyncio.gather(*sent))
        finally:  # a signal that reaches one of them ends them all
            for each in sent:
                each.cancel()

    async def _foreground(self, run: Run, turn: Turn, sender: Offer, steps: Steps, spec: Spec) -> str:
        """A subagent's report to the turn it is part of: of the type's own profile's level, where it has one, is all of it."""
        kind, progress = self.plugins.registry.get(spec.subagent_type), Progress([])
        offer = self.offers[kind.profile] if kind.profile else sender
        await steps.sink(offer.level, f"by the profile {kind.profile}")
        hand = await at_hand(self.plugins, self.servers, spec.tools)
        desk = replace(self._desk(run, turn, progress, hand, _none_below, sends=False), uses=steps.uses)
        instructions = offer.beside(kind, worker_instructions(kind))
        try:
            await loop.drive(
                offer.model or self.model,
                hand.told(instructions),
                toolset(desk, hand.names),
                progress,
                user_message(harmless(spec.prompt)),
                Counted(self, turn, steps),
                self.bounds.stall_s,
                hand.gates(parks=False),  # part of one tool call: nothing of it could be kept meanwhile
                self._window(turn, offer).room,
            )
        except (ModelCallFailed, AgentRunError) as error:
            return ended_early("MODEL_FAILED", classify(error.__cause__ or error, quote=steps.quotes).message, progress)
        except LoopGaveUp as error:
            return ended_early(*cut_short(error, progress, self.bounds.stall_s, self.db.now()), progress)
        report = report_of(progress) or "NO_REPORT: the subagent ended without a report."
        return await self._let_out(turn, offer, report)

    async def _let_out(self, turn: Turn, offer: Offer, report: str) -> str:
        """A subagent's report, or that the guard of the type's own profile refuses it."""
        own = offer.guarded and offer.profile.name != turn.task.profile
        rule = await self.plugins.refuses(report, offer.profile.name, turn.task.id) if own else None
        return f"OUTPUT_REJECTED: the output guard refused the report ({rule})." if rule else report


async def _none_below(specs: list[Spec]) -> list[str]:
    return [NONE_BELOW] * len(specs)


def _park(tx: Tx, run: Run, question: Question, within_s: float | None) -> None:
    terminal.park(tx, run, question, deadline=None if within_s is None else tx.now + int(within_s * SECOND))


def _note(tx: Tx, turn: Turn, uses: Iterable[tuple[str, Use]]) -> None:
    if tasks.exists(tx, turn.task.id):
        memory_uses.note(tx, turn.task.id, turn.task.session, uses)


def _expire(tx: Tx, run: Run) -> None:
    if queue.finish(tx, run):
        terminal.expire(tx, run.params["task"], run.params["revision"])


def _settle_without_steps(tx: Tx, run: Run, outcome: Outcome) -> bool:
    """Settle a turn whose answer may not stay anywhere, the last step included."""
    settled = terminal.settle(tx, run, outcome)
    if settled:
        tasks.scrub(tx, run.task_id or "")
    return settled
