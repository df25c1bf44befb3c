"""The turn's handler: chat turns and jobs alike are begun, driven and settled here. There is no other turn driver.

It decides how a turn ended, in the words of the contract; what must follow from an end is `terminal.settle`'s.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models import Model

from agent import budgets, handling, loop, taking_up, tracing
from agent.budgets import Budgets, OverBudget, Tab
from agent.facts import facts_of
from agent.gates import ASK_USER, REFUSALS, Gates
from agent.guard import KeepsAsking
from agent.loop import ModelCallFailed, Progress, Stalled, TooManySteps, UnfinishedAnswer, user_message
from agent.models import classify
from agent.notifications import excerpt, harmless
from agent.offers import Offer, gone
from agent.on_behalf import on_behalf_of
from agent.pieces import Pieces
from agent.plugins import Plugins
from agent.providers import before_requests, providers_of
from agent.release import may_ask, released
from agent.subagents import UnknownSubagent, worker_instructions
from agent.taking_up import Shape, Turn
from agent.tools import NONE_BELOW, Desk, Foreground, Refuses, toolset
from background import checkpoints, delivery, expenses, job_rows, masked, queue, tasks, terminal
from background.about import about
from background.ceilings import can_keep, strictest
from background.database import Database, Tx
from background.errors import LeaseLost, StorageUnavailable, TryAgain, Unread
from background.jobs import Spec
from background.limits import SECOND
from background.questions import Parks, Question
from background.queue import Run
from background.results import artifact_id
from background.tasks import Past, Task
from background.terminal import Outcome
from background.times import rfc3339
from background.usage import Usage
from background.worker import backoff
from knowledge.backend import Backend

log = logging.getLogger(__name__)

PAST_TURNS = 50
PAST_CHARS = 200_000
STORAGE_PAUSE_S = (0.2, 5.0)
LONGEST_RETRY_AFTER_S = 3600.0
LoopGaveUp = (Stalled, TooManySteps, KeepsAsking, UnfinishedAnswer)
Say = Callable[[Turn, str], None]


@dataclass(frozen=True)
class Bounds:
    """How long a turn may work and stay silent, in seconds, and how many subagents run side by side in one."""

    job_timeout_s: float = 3600
    turn_timeout_s: float = 900
    stall_s: float = 300
    side_by_side: int = 4


@dataclass(frozen=True)
class Turns:
    """All that a turn needs. `say` publishes text as it comes."""

    db: Database
    knowledge: Backend
    model: Model
    plugins: Plugins
    offers: Mapping[str, Offer]
    shape: Shape
    bounds: Bounds
    say: Say
    levels: Mapping[str, str] = field(default_factory=dict)  # of providers, by name: the most that is kept of theirs
    budgets: Budgets = Budgets()  # noqa: RUF009 - frozen

    def begin(self, tx: Tx, run: Run) -> tuple[Run, Turn]:
        """How a run of the kinds `turn` and `job` begins, or goes on."""
        answered_by_models = [name for name, offer in self.offers.items() if offer.by_model]
        return run, taking_up.begin(tx, run, self.shape, PAST_TURNS, answered_by_models)

    async def run(self, begun: tuple[Run, Turn]) -> None:
        """The handler of the kinds `turn` and `job`."""
        run, turn = begun
        offer = self.offers.get(turn.task.profile) or gone(turn.task.profile)
        with on_behalf_of(turn.task.owner, turn.job and turn.job.id), about(turn.job and turn.job.id):
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
        """Work until the task has ended or is parked; False where a message came to it that it has not taken up."""
        steps = _Steps(self, run, turn, offer)
        try:
            outcome = await self._paid(run, turn, offer, steps)
        except Parks as parks:
            refused = await may_ask(offer, self.plugins, turn.task.id, parks.question)
            if refused is None:
                await self.persist(_park, run, parks.question, self.bounds.job_timeout_s if turn.job else None)
                return True
            outcome = refused
        outcome = await released(offer, self.plugins, turn.task.id, outcome, report=turn.job is not None)
        keep = not (offer.guarded and outcome.state == "failed")
        try:
            await self._settle(run, self._with_excerpt(outcome), keep=keep, quote=steps.quotes)
        except Unread:
            return False
        return True

    async def _paid(self, run: Run, turn: Turn, offer: Offer, steps: "_Steps") -> Outcome:
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

    async def _work(self, run: Run, turn: Turn, offer: Offer, steps: "_Steps") -> Outcome:
        if turn.nothing_to_tell:
            return Outcome("completed")
        if offer.broken:
            return Outcome("failed", reason="INTERRUPTED", detail=f"Its profile takes no work now: {offer.broken}.")
        if offer.handler:
            limit = self._limit_s(turn)
            if not offer.handler.stoppable:
                await steps.begin_call(f"handled:{len(turn.contents) - 1}", offer.handler.name)
            holding = handling.Holding(turn.stored, None if offer.holds_back else self._committing(run))
            return await handling.handle(turn, offer, offer.handler, holding, self._left_s(run, turn), limit)
        return await self._think(run, turn, offer, steps)

    def _committing(self, run: Run) -> Callable[[str], Awaitable[None]]:
        """Commits pieces of an answer; the first takes the place of what an earlier try has told."""
        first = iter((True,))

        async def commit(text: str) -> None:
            await self.persist(partial(tasks.fragment, anew=next(first, False)), run, text)

        return commit

    async def _think(self, run: Run, turn: Turn, offer: Offer, steps: "_Steps") -> Outcome:
        progress = Progress(_history(turn.past))
        try:
            await self._drive(run, turn, offer, progress, steps)
        except ModelCallFailed as error:
            return await self._after_failure(run, progress, error.__cause__ or error, steps.quotes)
        except AgentRunError as error:
            return _failed(progress, "MODEL_FAILED", classify(error, quote=steps.quotes).message)
        except UnknownSubagent as error:
            return _failed(progress, "UNKNOWN_SUBAGENT", str(error))
        except LoopGaveUp as error:
            return _failed(progress, *self._cut_short(error, progress))
        except OverBudget as over:
            return _failed(progress, budgets.REASON, str(over))
        except TimeoutError:
            return _failed(progress, "TIMED_OUT", f"It ran longer than {self._limit_s(turn):g} s.")
        finally:
            await steps.pieces.end()
        return await self._completed(turn, progress)

    async def _drive(self, run: Run, turn: Turn, offer: Offer, progress: Progress, steps: "_Steps") -> None:
        names, instructions, parks = offer.tools, offer.instructions, True
        if turn.job:
            kind = self.plugins.registry.get(turn.job.subagent_type)
            names, instructions, parks = turn.job.tools, worker_instructions(kind), kind.parks
        desk = self._desk(run, turn, progress, lambda specs: self._side_by_side(run, turn, offer, steps, specs))
        async with asyncio.timeout(self._left_s(run, turn)):
            await loop.drive(
                offer.model or self.model,
                instructions,
                toolset(desk, names),
                progress,
                user_message(*turn.texts),
                steps,
                self.bounds.stall_s,
                self._gates(names, parks=parks),
            )

    def _gates(self, names: tuple[str, ...], *, parks: bool) -> Gates:
        """What of these tools waits for a person: those that plugins have marked so, and `ask_user`."""
        added = {name: self.plugins.tools[name] for name in names if name in self.plugins.tools}
        approvals = {name: one.tool for name, one in added.items() if one.needs_approval}
        lasting = frozenset(name for name, one in added.items() if not one.stoppable)
        return Gates(approvals, asking=ASK_USER in names, parks=parks, lasting=lasting)

    def _desk(self, run: Run, turn: Turn, progress: Progress, foreground: Foreground, *, sends: bool = True) -> Desk:
        return Desk(
            db=self.db,
            knowledge=self.knowledge,
            registry=self.plugins.registry,
            added={name: added.tool for name, added in self.plugins.tools.items()},
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

    def _cut_short(self, error: Exception, progress: Progress) -> tuple[str, str]:
        """Reason and detail of a turn that the loop gave up."""
        match error:
            case Stalled():
                last = rfc3339(self.db.now() - int(self.bounds.stall_s * SECOND))
                answers = f"after answer {len(progress.answers)}" if progress.answers else "before its first answer"
                answers = "in the middle of an answer" if progress.unfinished.strip() else answers
                return (
                    "STALLED",
                    f"The model gave no sign of life for {self.bounds.stall_s:g} s, since {last}, {answers}.",
                )
            case KeepsAsking():
                return (
                    "NO_REPORT",
                    f"It went on calling tools after the refusal of {REFUSALS} calls that need a person.",
                )
            case TooManySteps():
                return "OUTPUT_LIMIT", f"It made {loop.MAX_STEPS} model calls without coming to an end."
            case UnfinishedAnswer(cause="length"):
                return "OUTPUT_LIMIT", "The model's answer was cut off at its length limit."
            case UnfinishedAnswer(cause="content_filter"):
                return "MODEL_FAILED", "The model's provider refused to answer (content filter)."
        return "MODEL_FAILED", "The model's provider ended the answer with an error."

    async def _after_failure(self, run: Run, progress: Progress, error: BaseException, quote: bool) -> Outcome:
        """A model call failed: another try, if one may help and there is one left, else the end. Raises `TryAgain`."""
        if isinstance(error, StorageUnavailable):
            raise error
        failure = classify(error, quote=quote)
        tries = await self.db.read(queue.tries, run)
        if failure.transient and tries < self.db.limits.max_attempts:
            asked = min(failure.retry_after_s or 0.0, LONGEST_RETRY_AFTER_S)
            raise TryAgain(max(asked, backoff(tries)), failure.message)
        return _failed(progress, "MODEL_FAILED", failure.message)

    async def _completed(self, turn: Turn, progress: Progress) -> Outcome:
        if turn.job and not progress.final_texts:
            return _failed(progress, "NO_REPORT", "The worker ended without a report.")
        said = [_report(progress)] if turn.job else progress.final_texts
        if not (said := said or await self.db.read(_plain_note, turn.task.id)):
            return _failed(progress, "NO_REPORT", "The model gave no answer.")
        return Outcome(
            "completed",
            [_artifact(turn, [{"text": text} for text in said])],
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
            await self.persist(settle, run, outcome)
            if outcome.state == "failed":
                log.info("task %s failed: %s %s", run.task_id, outcome.reason, outcome.detail if quote else "")
        except (ValueError, TypeError, sqlite3.Error) as error:
            log.warning("the result of task %s cannot be stored: %s", run.task_id, type(error).__name__)
            failed = Outcome("failed", reason="NO_REPORT", detail=handling.NOT_STORABLE, written=False)
            await self.persist(settle, run, failed)

    async def persist(self, function: Callable[..., Any], *args: object) -> Any:
        """Write, and repeat that while nothing can be written: what a model has answered is not asked for again."""
        pause = STORAGE_PAUSE_S[0]
        while True:
            try:
                return await self.db.write(function, *args)
            except StorageUnavailable as error:
                log.warning("the storage cannot be written now: %s", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, STORAGE_PAUSE_S[1])

    async def _side_by_side(self, run: Run, turn: Turn, offer: Offer, steps: "_Steps", specs: list[Spec]) -> list[str]:
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

    async def _foreground(self, run: Run, turn: Turn, offer: Offer, steps: "_Steps", spec: Spec) -> str:
        progress = Progress([])
        desk = self._desk(run, turn, progress, _none_below, sends=False)
        instructions = worker_instructions(self.plugins.registry.get(spec.subagent_type))
        try:
            await loop.drive(
                offer.model or self.model,
                instructions,
                toolset(desk, spec.tools),
                progress,
                user_message(harmless(spec.prompt)),
                _Counted(self, turn, steps),
                self.bounds.stall_s,
                self._gates(spec.tools, parks=False),  # part of one tool call: nothing of it could be kept meanwhile
            )
        except (ModelCallFailed, AgentRunError) as error:
            return _ended_early(
                "MODEL_FAILED", classify(error.__cause__ or error, quote=steps.quotes).message, progress
            )
        except LoopGaveUp as error:
            return _ended_early(*self._cut_short(error, progress), progress)
        return _report(progress) or "NO_REPORT: the subagent ended without a report."


async def _none_below(specs: list[Spec]) -> list[str]:
    return [NONE_BELOW] * len(specs)


class _Counted(loop.Unkept):
    """The steps of a subagent in the foreground: what they cost is its turn's, also where it is run again from its start."""

    def __init__(self, turns: Turns, turn: Turn, steps: "_Steps") -> None:
        self._turns, self._turn, self._steps = turns, turn, steps

    async def keep_answer(self, number: int, messages: str) -> Collection[int]:
        owed = self._steps.tab.take()
        self._steps.below += owed
        await self._turns.persist(expenses.charge, self._turn.task, owed)
        return ()


class _Steps:
    """Keeps a turn's steps in its checkpoints."""

    def __init__(self, turns: Turns, run: Run, turn: Turn, offer: Offer) -> None:
        self._turns, self._run, self._turn = turns, run, turn
        self._level = turn.task.ceiling
        self._providers = set[str]()  # that this turn has asked
        asked = providers_of(offer.model or turns.model)
        # What was said live cannot be taken back: not where a provider that may be asked could make it sink.
        self._aloud = not offer.holds_back and all(turns.levels.get(name, "full") == "full" for name in asked)
        self.pieces = Pieces(self._commit)
        self.stored = turn.stored
        self.tab = Tab()
        self.below = Usage()  # what subagents in the foreground have cost since the last step

    @property
    def quotes(self) -> bool:
        """Whether others than its user may be told in its words what went wrong."""
        return self._level == "full"

    async def ask(self, provider: str) -> None:
        """A request to this provider is about to be made: budgets and its level have their say.

        Raises `OverBudget`, and `LeaseLost` where the level is the task's end.
        """
        await self._require_budget()
        self._providers.add(provider)
        level = self._turns.levels.get(provider, "full")
        if strictest(level, self._level) == self._level:
            return
        self._level = await self._turns.persist(terminal.lower, self._run, level)
        if not can_keep(self._level):
            log.info("task %s failed: %s at the provider %s", self._run.task_id, terminal.NOT_KEPT_REASON, provider)
            raise LeaseLost

    async def _require_budget(self) -> None:
        job, limits = self._turn.job, self._turns.budgets
        if job is not None and limits.limit:
            why = await self._turns.db.read(limits.over, self._turn.task, job, self.tab.owed.tokens)
            if why:
                raise OverBudget(why)

    async def keep_answer(self, number: int, messages: str) -> Collection[int]:
        await self.pieces.end()
        facts, owed = facts_of(loop.load(messages), self._providers, self.below), self.tab.take()
        self.below = Usage()
        try:
            self._level, altered = await self._turns.persist(
                _keep_answer, self._run, self._turn.task, number, messages, facts, owed
            )
        except (LeaseLost, Exception):
            self.tab.owe(owed)  # it was spent all the same
            raise
        return altered

    async def begin_call(self, key: str, name: str) -> None:
        await self._turns.persist(checkpoints.begin_call, self._run, key, name)

    async def keep_tool_result(self, name: str, result: str) -> None:
        self._level = await self._turns.persist(tasks.checkpoint, self._run, name, result)

    async def take_up(self, number: int) -> list[str]:
        if not await self._turns.db.read(taking_up.something_waits, self._turn.task):
            return []
        return await self._turns.db.write(taking_up.take_up, self._run, number, self._turns.shape)

    def say(self, text: str) -> None:
        if self._aloud and self._level == "full":
            self._turns.say(self._turn, text)
            if self._turn.task.origin == "user":  # of other turns nobody reads a stream
                self.pieces.say(text)

    async def _commit(self, piece: str, anew: bool) -> None:
        await self._turns.db.write(partial(tasks.fragment, anew=anew), self._run, piece)


def _keep_answer(
    tx: Tx, run: Run, task: Task, number: int, messages: str, facts: dict[str, Any], owed: Usage
) -> tuple[str, Collection[int]]:
    """The level at which it was kept, and the places of its calls that are not kept as they are."""
    level = tasks.checkpoint(tx, run, f"{masked.ANSWER}{number}", messages, facts)
    expenses.charge(tx, task, owed)
    return level, masked.kept_of(tx, run.task_id or "", number)


def _park(tx: Tx, run: Run, question: Question, within_s: float | None) -> None:
    terminal.park(tx, run, question, deadline=None if within_s is None else tx.now + int(within_s * SECOND))


def _expire(tx: Tx, run: Run) -> None:
    if queue.finish(tx, run):
        terminal.expire(tx, run.params["task"], run.params["revision"])


def _settle_without_steps(tx: Tx, run: Run, outcome: Outcome) -> bool:
    """Settle a turn whose answer may not stay anywhere, the last step included."""
    settled = terminal.settle(tx, run, outcome)
    if settled:
        tasks.scrub(tx, run.task_id or "")
    return settled


def _artifact(turn: Turn, parts: list[dict]) -> dict:
    return {"artifactId": artifact_id(turn.task.id), "parts": parts}


def _report(progress: Progress) -> str:
    """The final answer; where an earlier text of the same run is longer ("see above"), all texts in order.

    All of them too where a message came after an answer: what was answered before it is part of the report.
    """
    texts = progress.texts
    if len(progress.final_texts) > 1 or (len(texts) > 1 and max(map(len, texts[:-1])) > len(texts[-1])):
        return "\n\n".join(texts)
    return texts[-1] if texts else ""


def _failed(progress: Progress, reason: str, detail: str) -> Outcome:
    return Outcome(
        "failed",
        partial="\n\n".join(progress.texts) or None,
        reason=reason,
        detail=detail,
        transcript=loop.dump(progress.turn) if progress.turn else None,
    )


def _ended_early(reason: str, detail: str, progress: Progress) -> str:
    text = "\n\n".join(progress.texts)
    return f"{reason}: {detail}" + (f"\n\nWhat there was until then:\n\n{text}" if text else "")


def _plain_note(tx: Tx, task_id: str) -> list[str]:
    """What a user reads when the model had nothing to say of what the turn told or sent out; nothing, if it did neither."""
    told = [job_rows.by_id(tx, job_id) for job_id in delivery.attached_to(tx, task_id)]
    sent = job_rows.of_batch(tx, task_id)
    lines = [f"- {job.description}: {job.status} ({job.id})" for job in told or sent]
    if told:
        return ["\n".join(["These have ended; their reports can be opened:", "", *lines])]
    if sent:
        return ["\n".join(["These were sent out:", "", *lines])]
    return []


def _history(past: list[Past]) -> list[ModelMessage]:
    """The session's earlier turns as the model saw them, the latest that fit, each with an answer."""
    history: list[list[ModelMessage]] = []
    room = PAST_CHARS
    for row in reversed(past):
        if row.transcript and row.state == "completed":
            room -= len(row.transcript)
            messages = loop.load(row.transcript)
        elif row.text is not None and row.state != "completed":
            note = f"(This turn {row.state}: {row.detail or row.state})"
            messages = [user_message(harmless(row.text)), ModelResponse(parts=[TextPart(note)])]
        else:
            continue
        if room < 0:
            break
        history.append(messages)
    return [message for messages in reversed(history) for message in messages]
