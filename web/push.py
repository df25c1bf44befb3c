"""The handler of the kind `push`: one event of the journal to one webhook, again and again until it arrives or is dead.

Worker processes have it. It sends what the journal shows at the moment of the call and nothing else, so that what was
withheld or erased meanwhile is not sent; an event that is not there any more needs no call.
"""

import logging
import random
from dataclasses import dataclass
from typing import Any

from agent import tracing
from background import journal, queue, webhooks
from background.database import Database, Tx
from background.errors import TryAgain
from background.large import is_large
from background.queue import Run
from background.webhooks import Call, Webhook
from background.worker import JITTER
from web import a2a_views, push_body
from web.a2a_call import off_the_loop
from web.push_call import Courier, Undelivered

log = logging.getLogger(__name__)

TRIES = 12  # the pauses between them are 1 s, 2 s, … 1024 s: about 34 minutes
FIRST_PAUSE_S = 1.0
DIED = "its worker stopped each time"


@dataclass(frozen=True)
class Push:
    """Its calls go out by the courier's hand."""

    db: Database
    courier: Courier

    async def run(self, run: Run) -> None:
        call = Call(**run.params)
        if run.tries > TRIES:  # workers died in it, and nobody was left to count
            await self._give_up(run, call, DIED)
            return
        found = await self.db.read(_find, call)
        if found is None:
            await self.db.write(queue.finish, run, "canceled")
            return
        webhook, event, job_id = found
        body = await off_the_loop(is_large(event), push_body.body, event)
        try:
            with tracing.of_jobs("webhook", [job_id] if job_id else [], task_id=call.task, attempt=run.attempt):
                await self.courier.post(webhook, body, call.delivery, run.attempt)
        except Undelivered as undelivered:
            if run.tries >= TRIES:
                await self._give_up(run, call, str(undelivered))
                return
            raise TryAgain(max(pause(run.tries), undelivered.retry_after_s), str(undelivered)) from undelivered
        await self.db.write(queue.finish, run)

    async def _give_up(self, run: Run, call: Call, why: str) -> None:
        if await self.db.write(webhooks.give_up, run, why):
            log.warning("webhook call %s is dead after %s tries: %s", call.delivery, min(run.tries, TRIES), why)


def pause(tries: int) -> float:
    """Seconds to wait after the `tries`-th try: doubling, with a jitter of a fifth."""
    return FIRST_PAUSE_S * 2 ** (tries - 1) * random.uniform(1 - JITTER, 1 + JITTER)


def _find(tx: Tx, call: Call) -> tuple[Webhook, dict[str, Any], str | None] | None:
    """The webhook, the StreamResponse that it is to get, and the job that it is of; None where either is gone."""
    webhook = webhooks.find(tx, call.task, call.webhook)
    view = webhook and journal.view(tx, webhook.owner, call.task, content=False)
    if webhook is None or view is None:
        return None
    events = journal.after(tx, call.task, call.revision - 1, call.revision)
    entry = next((event for event in events if event.number == call.number), None)
    job_id = view.cause if view.origin == "background" else None
    if entry is None:
        return None
    event = a2a_views.event(view, entry)
    return webhook, push_body.unsaid(event) if view.incognito else event, job_id
