"""What may leave a turn: the whole answer against its profile's output schema and guard, before any of it is stored.

It decides and writes nothing. What is refused is told by place or rule, never by what stood there.
"""

import asyncio
from dataclasses import replace

from agent.handlers import text_of
from agent.offers import Offer, check_output
from agent.plugins import Plugins
from background.questions import Question
from background.schemas import Unfit
from background.terminal import Outcome

REJECTED = "OUTPUT_REJECTED"


async def released(offer: Offer, plugins: Plugins, task_id: str, outcome: Outcome, *, report: bool) -> Outcome:
    """The outcome as it may be stored and told. A job's `report` is for the one who sent it out, and has no schema."""
    if outcome.state != "completed":
        # What there was until then has passed no check, and never will.
        return replace(outcome, partial=None, transcript=None) if offer.guarded else outcome
    if offer.gives and not report:
        try:
            await asyncio.to_thread(check_output, offer.gives, outcome.artifacts)
        except Unfit as unfit:
            return _rejected(f"The answer does not fit the profile's output_schema: {unfit}.")
    if offer.guarded:
        rule = await plugins.refuses(text_of(outcome.artifacts), offer.profile.name, task_id)
        if rule:
            return _rejected(f"The output guard refused the answer ({rule}).")
    return outcome


async def may_ask(offer: Offer, plugins: Plugins, task_id: str, question: Question) -> Outcome | None:
    """None where the question may be asked; else the end of the task. A question leaves the house like an answer."""
    if not offer.guarded:
        return None
    rule = await plugins.refuses("\n\n".join([question.text, question.detail]), offer.profile.name, task_id)
    return _rejected(f"The output guard refused a question ({rule}).") if rule else None


def _rejected(detail: str) -> Outcome:
    return Outcome("failed", reason=REJECTED, detail=detail)
