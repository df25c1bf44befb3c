"""What follows the end of a job: index the report, then report done, and the join may come. Handlers of follow-ups.

A failing index holds a delivery for three tries; then it goes on without the pointer, and indexing goes on as a run
of its own.
"""

import logging
from dataclasses import dataclass

from agent import tracing
from background import batches, job_rows, jobs, queue, results, tallies, tasks
from background.database import Database, Tx
from background.errors import TryAgain
from background.job_rows import Job
from background.queue import Run
from background.worker import backoff
from knowledge import trust
from knowledge.backend import Backend, Document, StoreFailed

log = logging.getLogger(__name__)

TRIES = 3
PAUSE_S = 1.5
SOURCE_TYPE = "background_report"


@dataclass(frozen=True)
class Reports:
    """The handlers of the kinds `report`, `index` and `join`."""

    db: Database
    knowledge: Backend

    async def report(self, run: Run) -> None:
        """Index an ended attempt's report, and then let it be told."""
        job_id, attempt = run.params["job"], run.params["attempt"]
        try:
            with tracing.of_jobs("report", [job_id], attempt=attempt):
                level = await self.put(job_id, attempt)
        except StoreFailed as error:
            await self.db.write(tallies.add, "index_failures")
            if run.tries < TRIES:
                raise TryAgain(PAUSE_S, str(error)) from error
            await self.db.write(_done_without_index, run, job_id, attempt)
        else:
            await self.db.write(_done, run, job_id, attempt, level)
            log.info("job %s has ended and may be told%s", job_id, ", its report is indexed" if level else "")

    async def index(self, run: Run) -> None:
        """Index a report whose delivery did not wait for it."""
        job_id, attempt = run.params["job"], run.params["attempt"]
        try:
            with tracing.of_jobs("index", [job_id], attempt=attempt):
                level = await self.put(job_id, attempt)
        except StoreFailed as error:
            await self.db.write(tallies.add, "index_failures")
            raise TryAgain(backoff(run.tries), str(error)) from error
        await self.db.write(_indexed_late, run, job_id, attempt, level)

    async def join(self, run: Run) -> None:
        """A batch's deadline: what is there is told."""
        await self.db.write(_deadline, run)

    async def put(self, job_id: str, attempt: int) -> str | None:
        """Put a report into the index, as it is kept. Returns the answer level at which it is; raises `StoreFailed`.

        None for what is not indexed: no report, a partial one, an attempt that a later one has replaced, a job that
        was erased, or is incognito or deterministic.
        """
        job, text, level = await self.db.read(_report_of, job_id)
        if (
            job is None
            or job.incognito
            or job.deterministic
            or job.attempts != attempt
            or job.status != "completed"
            or not text
        ):
            return None
        await self.knowledge.put(
            Document(
                key=f"report:{job.id}:{attempt}",
                owner=job.owner,
                source=job.session_id,
                source_type=SOURCE_TYPE,
                heading=f"{job.description} ({job.id})",
                text=text,
                trust=trust.AGENT,
                made_of=job.made_of,
                created_at=job.completed_at or 0,
                job_id=job.id,
            )
        )
        return level


def _report_of(tx: Tx, job_id: str) -> tuple[Job | None, str, str]:
    job = job_rows.known(tx, job_id)
    if job is None:
        return None, "", ""
    result = results.read(tx, job.task_id)
    return job, result.text if result else "", tasks.ceiling_of(tx, job.task_id) if job.task_id else ""


def _indexed(tx: Tx, job_id: str, attempt: int, level: str | None) -> None:
    """The index holds the report as it was kept when it was read. Raises `TryAgain` where less is kept by now."""
    if level is None:
        return
    _, text, held = _report_of(tx, job_id)
    if held != level:
        raise TryAgain(0, "less is kept of the report by now than was indexed")
    if text:  # else it was erased meanwhile, and an `erase` run takes it out of the index
        jobs.indexed(tx, job_id, attempt)


def _done(tx: Tx, run: Run, job_id: str, attempt: int, level: str | None) -> None:
    if queue.finish(tx, run):
        _indexed(tx, job_id, attempt, level)
        jobs.report_done(tx, job_id, attempt)


def _done_without_index(tx: Tx, run: Run, job_id: str, attempt: int) -> None:
    if queue.finish(tx, run):
        jobs.report_done(tx, job_id, attempt)
        queue.enqueue(tx, "index", f"index:{job_id}:{attempt}", params=run.params)


def _indexed_late(tx: Tx, run: Run, job_id: str, attempt: int, level: str | None) -> None:
    if queue.finish(tx, run):
        _indexed(tx, job_id, attempt, level)


def _deadline(tx: Tx, run: Run) -> None:
    if queue.finish(tx, run):
        batches.past_deadline(tx, run.params["batch"])
