"""A turn that a handler answers: what the handler is given of it, and how it ended.

Other than a model's turn it has no steps: it is run again from its start, with the answers that were stored. For each
message that came to its task while it worked it is run once more, and the results stand in that order; a job's is run
for its arguments alone. What must not run twice is begun once, and told as interrupted where it was cut off.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from agent.handlers import KEPT, BadAnswer, Handler, Work, WorkFailed
from agent.offers import Offer
from agent.taking_up import Turn
from background.errors import StorageUnavailable, TryAgain
from background.large import is_large, one_by_one
from background.questions import Parks
from background.results import artifact_id
from background.terminal import Outcome
from background.text import clean
from background.values import text_of, value_of

log = logging.getLogger(__name__)

NOT_STORABLE = "Its result could not be stored."
CUT_OFF = "It was cut off in its work, which may have had effects and is not done twice; a retry does it anew."
Step = Callable[[str, str], Awaitable[None]]


class Holding:
    """What a handler's `Work` reaches of its turn; `commit` takes a piece of the answer, None where none may leave.

    `step` commits a step under its name.
    """

    def __init__(
        self, stored: dict[str, str], commit: Callable[[str], Awaitable[None]] | None, step: Step | None = None
    ) -> None:
        self.stored = stored
        self._commit = commit
        self._step = step

    def of(self, number: int) -> "Holding":
        """The same for the `number`-th message that came later: what was answered to it, and no pieces."""
        if not number:
            return self
        mine = f"answer:{_mark(number)}"
        return Holding(
            {f"answer:{name[len(mine) :]}": self.stored[name] for name in self.stored if name.startswith(mine)}, None
        )

    async def keep(self, name: str, content: str) -> None:
        """Commit a step; one that is there stays as it is, and is no progress."""
        if name not in self.stored:
            if self._step:
                await self._step(name, content)
            self.stored[name] = content

    async def fragment(self, text: str) -> None:
        """Commit a piece, or hold it back."""
        if self._commit:
            await self._commit(text)


async def handle(
    turn: Turn, offer: Offer, handler: Handler, holding: Holding, within_s: float, limit_s: float
) -> Outcome:
    """Run the handler, for as long as `within_s` of its `limit_s` is left. Raises `Parks`, and what the handler raises."""
    deadline = asyncio.timeout(within_s)
    artifacts: list[dict[str, Any]] = []
    try:
        async with deadline:
            for number in range(1 if turn.job else len(turn.contents)):
                artifacts += await _handled(turn, offer, handler, holding, number)
    except BadAnswer as error:
        log.warning("the answer of task %s cannot be stored: %s", turn.task.id, error)
        return _failed(holding, "NO_REPORT", NOT_STORABLE)
    except WorkFailed as failed:
        return _failed(holding, "NO_REPORT", clean(str(failed)))
    except _CutOff:
        return _failed(holding, "INTERRUPTED", CUT_OFF)
    except _Broken as broken:
        return _failed(holding, "ATTEMPTS_EXHAUSTED", str(broken))
    except TimeoutError:
        if not deadline.expired():
            raise
        return _failed(holding, "TIMED_OUT", f"It ran longer than {limit_s:g} s.")
    numbered = [{"artifactId": artifact_id(turn.task.id, number), **made} for number, made in enumerate(artifacts, 1)]
    return Outcome("completed", numbered)


class _CutOff(Exception):
    """Work that must not run twice had begun before."""


class _Broken(Exception):
    """Work that must not run twice has raised; the text says so."""


def _failed(holding: Holding, reason: str, detail: str) -> Outcome:
    """A failure, with the steps that were kept until then."""
    steps = [(name, json.loads(holding.stored[name])) for name in holding.stored if name.startswith(KEPT)]
    lines = [
        f"- {name.removeprefix(KEPT)}: {step if isinstance(step, str) else json.dumps(step)}" for name, step in steps
    ]
    return Outcome("failed", partial="\n".join(lines) or None, reason=reason, detail=detail)


async def _handled(turn: Turn, offer: Offer, handler: Handler, holding: Holding, number: int) -> list[dict[str, Any]]:
    """What came of one message: what it was, if another has come since, and else what it is now."""
    name = f"handled:{number}"
    if name not in turn.stored:
        try:
            work = _work(turn, offer, holding.of(number), turn.contents[number])
            made = await (_once(handler, work, holding) if offer.once else handler.run(work))
        except Parks as parks:
            raise _of_message(parks, number) from None
        turn.stored[name] = await one_by_one(text_of, made) if is_large(made) else text_of(made)
        return made
    return value_of(turn.stored[name])


async def _once(handler: Handler, work: Work, holding: Holding) -> list[dict[str, Any]]:
    """Run what must not run twice. An answer to what it asked is a new beginning, which its author knows of."""
    begun = f"begun:{sum(name.startswith('answer:') for name in holding.stored)}"
    if begun in holding.stored:
        raise _CutOff
    await holding.keep(begun, "true")
    try:
        return await handler.run(work)
    except (BadAnswer, WorkFailed, StorageUnavailable, TimeoutError, TryAgain):
        raise
    except Exception as error:
        error_id = secrets.token_hex(4)
        told = ("the work %s of task %s failed, error %s", handler.name, work.task_id, error_id)
        log.error(*told, exc_info=not work.incognito)
        raise _Broken(f"It failed (error {error_id}), and is not done twice.") from error


def _of_message(parks: Parks, number: int) -> Parks:
    """The same question, told apart from one of the same words that was asked for another message."""
    return Parks(replace(parks.question, key=_mark(number) + parks.question.key)) if number else parks


def _mark(number: int) -> str:
    return f"m{number}:"


def _work(turn: Turn, offer: Offer, holding: Holding, content: dict[str, Any]) -> Work:
    parts = content["parts"]
    text = "\n".join(part["text"] for part in parts if "text" in part)
    return Work(
        task_id=turn.task.id,
        session=turn.session.id,
        owner=turn.task.owner,
        message_id=content["messageId"],
        text=text,
        parts=parts,
        data=_data(parts, text, offer),
        _hold=holding,
        incognito=turn.task.incognito,
    )


def _data(parts: list[dict[str, Any]], text: str, offer: Offer) -> Any:
    """The first data part's value; of a profile that takes structured data, also that of a text that spells it."""
    for part in parts:
        if "data" in part:
            return part["data"]
    if offer.takes is None and not offer.works:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
