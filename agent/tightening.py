"""Tightening: what was kept at a higher answer level than holds now is brought down, in the registry and in the index.

The registry is brought down before anything is served, so nothing above the level goes out after a start. The index
follows by the handler of the kind `tighten`, a run of the same commit, which a crash does not undo.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from agent.profiles import CHAT
from agent.reports import Reports
from background import job_rows, queue, steps, tasks, terminal
from background.ceilings import LEVELS
from background.database import Database, Tx
from background.errors import TryAgain
from background.job_rows import Job
from background.queue import Run
from background.worker import backoff
from knowledge.backend import Backend, StoreFailed

log = logging.getLogger(__name__)

AT_ONCE = 20  # tasks that are brought down in one transaction
Levels = Mapping[str | None, str]  # by profile; None: of those that there are none of any more


async def bring_down(db: Database, levels: Levels, providers: Mapping[str, str] | None = None) -> None:
    """Lay the levels in force against what is stored, at a start: of profiles, and of `providers` in what they were asked.

    What a crash leaves is found at the next start.
    """
    count = 0
    while some := await db.write(_some, levels, providers or {}):
        count += some
    await db.write(_errands, levels[CHAT])
    if count:
        log.info("the answer level is stricter than it was: %s tasks were brought down to it", count)
        await db.shrink()


def _some(tx: Tx, levels: Levels, providers: Mapping[str, str]) -> int:
    """Bring down as many as fit into one transaction. Returns how many there were."""
    found: list[tuple[str, str]] = []
    named = [profile for profile in levels if profile is not None]
    for profile, level in levels.items():
        if level != LEVELS[0] and len(found) < AT_ONCE:
            looser = tasks.looser(tx, level, profile, named, AT_ONCE - len(found))
            found += [(task_id, level) for task_id in looser]
    for provider, level in providers.items():
        found += [(task_id, level) for task_id in steps.of_provider(tx, provider, level, AT_ONCE - len(found))]
    for task_id, level in found:
        terminal.tighten(tx, task_id, level)
    return len(found)


def _errands(tx: Tx, level: str) -> None:
    """What programs have asked for and no task has taken up: a job of theirs is of the profile chat."""
    if level != LEVELS[0]:
        for job in job_rows.not_dispatched(tx):
            terminal.tighten_errand(tx, job, level)


@dataclass(frozen=True)
class Tightening:
    """The handler of the kind `tighten`."""

    db: Database
    knowledge: Backend
    reports: Reports

    async def run(self, run: Run) -> None:
        """The report as it is kept now takes the place of what the index has; where none is kept, nothing does."""
        job = await self.db.read(job_rows.known, run.params["job"])
        if job is not None:
            try:
                await self._index_anew(job)
                clean = await self.knowledge.purge()
            except StoreFailed as error:
                raise TryAgain(backoff(run.tries), str(error)) from error
            if not (clean and await self.db.shrink()):
                raise TryAgain(backoff(run.tries), "a reader is in the way")
        await self.db.write(queue.finish, run)

    async def _index_anew(self, job: Job) -> None:
        keeps = job.indexed and job.report_chars > 0
        # What is from before is not taken in any more, so a report that is being indexed just now does not come back.
        until = (job.completed_at or self.db.now()) - int(keeps)
        await self.knowledge.erase_jobs(job.owner, [job.id], until)
        if keeps:
            await self.reports.put(job.id, job.attempts)
