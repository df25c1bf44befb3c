"""Reading: a long list in small pages without a gap or a repeat, and no read that writes."""

import asyncio
import itertools
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from background import acceptance, jobs, queue, sessions, tasks, terminal
from background.database import Database, Tx
from tests.background.factories import OWNER, message, outcome, take
from tests.support.server import Server
from tests.web.shapes import assert_job

JOBS = 600
REPORT = "A line of a report of fifty thousand characters.\n" * 1000
SESSION = "archive"


def fill(tx: Tx) -> None:
    """Six hundred ended jobs with their reports, all told, by the product's own transactions run into one."""
    worker = (
        "insert into workers (id, host, pid, started_at, beat_at, swept_at) values ('w', 'here', 1, :now, :now, :now)"
    )
    tx.x(worker, now=tx.now)
    session = sessions.open_session(tx, OWNER, SESSION)
    for number in range(JOBS):
        tx.now += number % 2  # every other one at the same moment as the one before it
        spec = jobs.Spec(f"look {number}", f"Look into {number}.", "general", ())
        (job,) = jobs.spawn(tx, session, f"batch-{number}", [(f"key-{number}", spec)], closed=True)
        dispatch = take(tx, "key", f"dispatch:{job.id}:1", "w")
        post = message(job.prompt, session_id=f"{sessions.BACKGROUND}{job.id}", origin="background", cause=job.id)
        task_id = acceptance.accept(tx, post).task_id
        queue.finish(tx, dispatch)
        run = take(tx, "task_id", task_id, "w")
        tasks.begin(tx, run)
        terminal.settle(tx, run, outcome("completed", REPORT, excerpt=REPORT[:1500]))
        queue.finish(tx, take(tx, "key", f"report:{job.id}:1", "w"))
        queue.cancel_key(tx, f"join:batch-{number}")
    tx.x("delete from workers")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without a worker, over six hundred ended jobs: nobody but its callers could write anything."""
    data = tmp_path_factory.mktemp("archive") / "data"

    async def prepare(path: Path) -> None:
        db = await Database(path).open()
        await db.write(fill)
        await db.close()

    asyncio.run(prepare(data / "outrider.db"))
    with Server(data, "--no-worker") as server:
        yield server


def pages(server: Server, **asked: str) -> Iterator[list[dict]]:
    cursor: dict[str, str] = {}
    while True:
        page = server.get("/api/background", **asked, **cursor)
        yield page["jobs"]
        if not page["next_cursor"]:
            return
        cursor = {"cursor": page["next_cursor"]}


def test_f010_the_first_page_is_small_and_has_no_report(archive: Server) -> None:
    answer = archive.http.get("/api/background")
    assert len(answer.content) < 200_000
    listed = answer.json()["jobs"]
    assert len(listed) == 50
    for job in listed:
        assert_job(job)
        assert job["report_chars"] == len(REPORT) and job["excerpt"] == REPORT[:1500]


@pytest.mark.parametrize("limit", ["1", "7", "50", "200"])
def test_f010_a_cursor_walks_all_jobs_newest_first_without_a_repeat(archive: Server, limit: str) -> None:
    few = itertools.islice(pages(archive, limit=limit), 40)
    walked = [job for page in few for job in page]
    expected = min(JOBS, 40 * int(limit))
    assert len({job["id"] for job in walked}) == len(walked) == expected
    times = [job["created_at"] for job in walked]
    assert times == sorted(times, reverse=True)


def test_f010_filters_hold_over_all_pages(archive: Server) -> None:
    assert sum(map(len, pages(archive, session=SESSION, status="completed", limit="200"))) == JOBS
    assert list(pages(archive, session="nosuch")) == [[]]
    assert list(pages(archive, status="failed")) == [[]]
    assert list(pages(archive, dismissed="true")) == [[]]
    (one,) = next(pages(archive, batch="batch-7"))
    assert one["description"] == "look 7"


def test_s44_reading_changes_no_row_however_many_read(archive: Server) -> None:
    """The file's data version, which every commit of anybody's moves on, stands still."""
    (first, *_), *_ = pages(archive)
    paths = [
        "/api/background",
        "/api/background?limit=200&status=completed",
        f"/api/background/{first['id']}",
        f"/api/background/{first['id']}/report",
        f"/api/batches/{first['batch_id']}",
        "/api/sessions",
        f"/api/sessions/{SESSION}",
        f"/api/sessions/{SESSION}/messages",
        f"/api/sessions/background:{first['id']}/messages",
        "/api/knowledge/search?q=report",
        "/api/knowledge/documents",
        "/api/status",
        "/metrics",
        "/readyz",
    ]
    with closing(sqlite3.connect(archive.data / "outrider.db")) as stranger, ThreadPoolExecutor(20) as pool:
        version = stranger.execute("pragma data_version").fetchone()
        answers = list(pool.map(archive.http.get, paths * 10))
        archive.task(first["task_id"])
        assert stranger.execute("pragma data_version").fetchone() == version
    assert {answer.status_code for answer in answers} == {200, 503}  # it has no worker, and /readyz says so
    assert "locked" not in archive.log() and "ERROR" not in archive.log()


def test_a66_without_a_worker_everything_can_still_be_read(archive: Server) -> None:
    (first, *_), *_ = pages(archive)
    assert archive.job(first["id"])["report"] == REPORT
    assert archive.task(first["task_id"])["status"]["state"] == "TASK_STATE_COMPLETED"
    assert archive.http.get(f"/api/background/{first['id']}/report").text == REPORT


def test_a_job_that_no_worker_takes_waits_and_says_why(archive: Server) -> None:
    """It is accepted all the same: the queue keeps it, and whoever starts a worker finds it."""
    job = archive.spawn(SESSION, "wait for a worker")
    assert job["status"] == "queued" and job["delivery"] == {"state": "none", "attempts": 0, "last_error": None}
    archive.wait(lambda: archive.job(job["id"])["delivery"]["last_error"])
    waiting = archive.job(job["id"])
    assert_job(waiting, report=True)
    assert waiting["status"] == "queued" and waiting["delivery"]["attempts"] >= 1
    assert "No worker is live" in waiting["delivery"]["last_error"]
    assert archive.post(f"/api/background/{job['id']}/cancel")["status"] == "canceled"
    assert archive.job(job["id"])["delivery"]["last_error"] is None
