"""What is measured on is what the product writes: a registry that a benchmark has filled can be read like any other."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from background import job_rows, journal, sessions
from background.database import Database
from benchmarks.filling import TEXT, fill
from tests.background.story import log_of


def test_a_filled_registry_holds_together_and_every_text_of_it_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "outrider.db"

    async def made() -> None:
        await (await Database(path).open()).close()
        fill(path, 60)
        db = await Database(path).open()
        page = await db.read(job_rows.page, "local", limit=100)
        assert len(page) == 60
        assert {(job.status, job.delivery, job.prompt) for job in page} == {("completed", "delivered", TEXT)}
        view = await db.read(journal.view, "local", "t59")
        assert view and view.ended and view.result is not None
        assert [event.state for event in await db.read(journal.after, "t59", 0)] == [
            "submitted",
            "working",
            "completed",
        ]
        session = await db.read(sessions.get, "local", "s1")
        assert (await db.read(sessions.with_running, session)).title == TEXT
        assert [message.text for message in await log_of(db, session.uid, 50, None)] == [TEXT] * 10
        assert await db.write(journal.project) == 0
        await db.close()

    asyncio.run(made())
    with closing(sqlite3.connect(path)) as stranger:
        assert stranger.execute("pragma foreign_key_check").fetchall() == []
        filled = [
            f"select '{table}' from {table}" for table in ("deliveries", "members", "messages", "results", "runs")
        ]
        assert len(stranger.execute(" union all ".join(filled)).fetchall()) == 5 * 60
