"""Tightening: what was kept at a higher answer level than holds now is brought down, in the registry and in the index.

The handler of the kind `tighten`. At the start of a process the levels in force are laid against what is stored; a task
whose level has sunk leaves its job's report here to be taken out of the index. Either survives a crash: it is a run.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.reports import Reports
from background import jobs, queue, tasks, terminal
from background.ceilings import LEVELS
from background.database import Database, Tx
from background.errors import TryAgain
from background.jobs import Job
from background.queue import Run
from background.worker import backoff
from knowledge.backend import Backend, StoreFailed

log = logging.getLogger(__name__)

AT_ONCE = 20  # tasks that are brought down in one transaction


@dataclass(frozen=True)
class Tightening:
    """The handler of the kind `tighten`."""

    db: Database
    knowledge: Backend
    reports: Reports

    async def run(self, run: Run) -> None:
        """Bring down all that is stored, or what the index holds of one job."""
        if "job" in run.params:
            await self._in_the_index(run)
            return
        count = 0
        while some := await self.db.write(_some, run):
            count += some
        if count:
            log.info("the answer level is stricter than it was: %s tasks were brought down to it", count)
        if not await self.db.shrink():
            raise TryAgain(backoff(run.tries), "a reader is in the way")
        await self.db.write(queue.finish, run)

    async def _in_the_index(self, run: Run) -> None:
        """The report as it is kept now takes the place of what was indexed; where none is kept, nothing does."""
        job = await self.db.read(jobs.known, run.params["job"])
        if job is not None:
            try:
                await self._indexed_anew(job)
                clean = await self.knowledge.purge()
            except StoreFailed as error:
                raise TryAgain(backoff(run.tries), str(error)) from error
            if not (clean and await self.db.shrink()):
                raise TryAgain(backoff(run.tries), "a reader is in the way")
        await self.db.write(queue.finish, run)

    async def _indexed_anew(self, job: Job) -> None:
        keeps = job.indexed and job.report_chars > 0
        # What is from before is not taken in any more, so a report that is being indexed just now does not come back.
        until = (job.completed_at or self.db.now()) - int(keeps)
        await self.knowledge.erase_jobs(job.owner, [job.id], until)
        if keeps:
            await self.reports.put(job.id, job.attempts)


def start(tx: Tx, levels: Mapping[str, str], otherwise: str) -> None:
    """The levels in force, by profile, against what is stored: a run, if there is anything to bring down.

    `otherwise` is that of profiles that there are none of any more.
    """
    params = {"levels": dict(levels), "otherwise": otherwise}
    if _looser(tx, params, 1):
        queue.enqueue(tx, "tighten", f"tighten:{tx.now}", params=params)


def _some(tx: Tx, run: Run) -> int:
    """Bring down as many as fit into one transaction. Returns how many there were."""
    queue.progress(tx, run)
    found = _looser(tx, run.params, AT_ONCE)
    for task_id, level in found:
        terminal.tighten(tx, task_id, level)
    return len(found)


def _looser(tx: Tx, params: Mapping[str, Any], limit: int) -> list[tuple[str, str]]:
    levels: dict[str, str] = params["levels"]
    found: list[tuple[str, str]] = []
    for profile, level in [*levels.items(), (None, params["otherwise"])]:
        if level != LEVELS[0] and len(found) < limit:
            more = tasks.looser(tx, level, profile, list(levels), limit - len(found))
            found += [(task_id, level) for task_id in more]
    return found
