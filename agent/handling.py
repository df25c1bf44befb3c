"""A turn that a handler answers: what the handler is given of it, and how it ended.

Other than a model's turn it has no steps: it is run again from its start, with the answers that were stored. For each
message that came to its task while it worked it is run once more, and the results stand in that order.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from agent.handlers import BadAnswer, Handler, Work
from agent.offers import Offer
from agent.taking_up import Turn
from background.large import is_large, one_by_one
from background.questions import Parks
from background.results import artifact_id
from background.terminal import Outcome
from background.values import text_of, value_of

log = logging.getLogger(__name__)

NOT_STORABLE = "Its result could not be stored."


class Holding:
    """What a handler's `Work` reaches of its turn; `commit` takes a piece of the answer, None where none may leave."""

    def __init__(self, stored: Mapping[str, str], commit: Callable[[str], Awaitable[None]] | None) -> None:
        self.stored = stored
        self._commit = commit

    def of(self, number: int) -> "Holding":
        """The same for the `number`-th message that came later: what was answered to it, and no pieces."""
        if not number:
            return self
        mine = f"answer:{_mark(number)}"
        return Holding(
            {f"answer:{name[len(mine) :]}": self.stored[name] for name in self.stored if name.startswith(mine)}, None
        )

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
            for number in range(len(turn.contents)):
                artifacts += await _handled(turn, offer, handler, holding, number)
    except BadAnswer as error:
        log.warning("the answer of task %s cannot be stored: %s", turn.task.id, error)
        return Outcome("failed", reason="NO_REPORT", detail=NOT_STORABLE)
    except TimeoutError:
        if not deadline.expired():
            raise
        return Outcome("failed", reason="TIMED_OUT", detail=f"It ran longer than {limit_s:g} s.")
    numbered = [{"artifactId": artifact_id(turn.task.id, number), **made} for number, made in enumerate(artifacts, 1)]
    return Outcome("completed", numbered)


async def _handled(turn: Turn, offer: Offer, handler: Handler, holding: Holding, number: int) -> list[dict[str, Any]]:
    """What came of one message: what it was, if another has come since, and else what it is now."""
    name = f"handled:{number}"
    if name not in turn.stored:
        try:
            made = await handler.run(_work(turn, offer, holding.of(number), turn.contents[number]))
        except Parks as parks:
            raise _of_message(parks, number) from None
        turn.stored[name] = await one_by_one(text_of, made) if is_large(made) else text_of(made)
        return made
    return value_of(turn.stored[name])


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
    )


def _data(parts: list[dict[str, Any]], text: str, offer: Offer) -> Any:
    """The first data part's value; of a profile that takes structured data, also that of a text that spells it."""
    for part in parts:
        if "data" in part:
            return part["data"]
    if offer.takes is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
