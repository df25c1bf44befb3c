"""What goes from both stores: the handlers of the kinds `erase` and `purge`, and how a report is forgotten by a text.

Rows are hidden by the transaction that enqueues; here the index follows, and the bytes leave the files. Until that has
succeeded the run is repeated. It decides nothing about what is erased.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

from agent import memory_tool
from agent.material import RECALLED
from agent.notifications import erased_block
from agent.reports import SOURCE_TYPE
from background import queue, retention
from background.database import Database, Tx
from background.errors import StorageUnavailable, TryAgain
from background.limits import SECOND
from background.queue import Run
from background.retention import Ages
from background.worker import backoff
from knowledge.backend import Backend, StoreFailed

log = logging.getLogger(__name__)

PURGE = "purge"
PURGE_EVERY_S = 3600.0
GONE = "(This report was erased.)"
GONE_SESSION = "(What stood here of another session was erased.)"


@dataclass(frozen=True)
class Lifecycle:
    """The handlers of the kinds `erase` and `purge`; `ages` say how long what has ended is kept."""

    db: Database
    knowledge: Backend
    ages: Ages

    async def erase(self, run: Run) -> None:
        """Take the reports of erased jobs out of the index, and what was erased out of the files."""
        try:
            owner, at = run.params["owner"], run.params["at"]
            await self.knowledge.erase_jobs(owner, run.params["jobs"], at)
            if source := run.params.get("session"):  # what it remembers of jobs that were purged before
                await self.knowledge.erase_source(owner, source, source_type=SOURCE_TYPE, until=at)
                # The session's name is its user's words too, and this run stays for as long as what has ended does.
                await self.db.write(queue.reduce, run, {**run.params, "session": None})
            clean = await self.knowledge.purge()
            clean = clean and await self.db.shrink()
        except (StoreFailed, StorageUnavailable) as error:
            raise TryAgain(backoff(run.tries), str(error)) from error
        if not clean:
            raise TryAgain(backoff(run.tries), "a reader is in the way")
        await self.db.write(queue.finish, run)
        log.info("erased: %s reports, and the files hold nothing of it any more", len(run.params["jobs"]))

    async def purge(self, run: Run) -> None:
        """Take what has outlived its time, and look again in an hour."""
        gone = 0
        while True:
            while some := await self.db.write(retention.purge, self.ages):
                gone += some
            if gone:
                log.info("purged %s rows that had outlived their time", gone)
                if not await self.db.shrink():
                    await self.db.write(retention.clean)
            if not (gone := await self.db.write(_again_unless_more, run, self.ages)):
                return


def start_purging(tx: Tx) -> None:
    """The one purge of this registry is in the queue, whoever put it there."""
    queue.enqueue(tx, PURGE, PURGE)


def _again_unless_more(tx: Tx, run: Run, ages: Ages) -> int:
    """What was held back until now is taken at once; where there is nothing, the run waits. Returns how many rows went."""
    if gone := retention.purge(tx, ages):
        return gone
    queue.release(tx, run, due_at=tx.now + int(PURGE_EVERY_S * SECOND), counts=False)
    return 0


def forgetting(job_id: str) -> Callable[[str], str]:
    """Takes a job's report out of a text that a turn was given: its notification, or what a tool read or found of it."""
    block = re.compile(rf"<task-notification>\n<job-id>{re.escape(job_id)}</job-id>.*?</task-notification>", re.DOTALL)
    found = re.compile(rf"^(\[\d+\]) [^\n]*\({re.escape(job_id)}\)  \(source [^\n]*\n[^\n]*", re.MULTILINE)
    read = (f"Report of {job_id},", f"{job_id} ")

    def forget(text: str) -> str:
        if text.startswith(read):
            return GONE
        if job_id not in text:
            return text
        text = block.sub(erased_block(job_id), text)
        return found.sub(rf"\1 {GONE}", text) if text.startswith(RECALLED) else text

    return forget


def forgetting_session(session_id: str) -> Callable[[str], str]:
    """Takes what was recalled of a session out of a text that a turn was given."""
    begins = memory_tool.beginning(session_id)
    return lambda text: GONE_SESSION if text.startswith(begins) else text
