"""An inbox for Outrider: each text file that is put into a folder is a job, whose worker may read that folder's files.

The folder is named by the variable INBOX_FOLDER; the jobs come back in the operator's chat `inbox`, and their reports are
written beside their files. A file is told by its
name and its time, so it is one job whatever restarts or how many processes look, and another one once it is changed.
"""

import asyncio
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

from agent.listeners import Event
from agent.plugins import MalformedPlugin
from agent.sdk import background_status, open_session, spawn_background
from agent.subagents import SubagentType
from background.errors import Fault, StorageUnavailable

log = logging.getLogger(__name__)

PLUGIN = "inbox"  # the entry point's name
SESSION = "inbox"
ASKED = "The file is "
SUFFIX = ".txt"
LOOK_S = 0.5
MOST_CHARS = 20_000
CLERK = SubagentType(
    name="clerk",
    description="Reads one file of the inbox and sums it up.",
    prompt="You are a clerk. Read the file that you are given with read_inbox, and sum up what it says and what it asks for.",
    tools=("read_inbox",),
)


class Inbox:
    """The folder, and which of its files have become jobs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sent: set[str] = set()

    def read_inbox(self, name: str) -> str:
        """The text of a file of the inbox, by its name."""
        file = self._named(name)
        return "There is no such file." if file is None else file.read_text(errors="replace")[:MOST_CHARS]

    async def write_report(self, event: Event) -> None:
        """Writes the report of a job of ours beside its file. It may be told twice, and writes the same again."""
        if event.data.get("plugin") != PLUGIN:
            return
        job = await background_status(event.data["id"])
        file = self._named(job.prompt.removeprefix(ASKED)) if job and job.report else None
        if job and file:
            file.with_suffix(".report.md").write_text(job.report or "")

    def look(self) -> None:
        """Sends a job out for each file that is new, or was changed."""
        for file in self._files():
            key = f"inbox:{file.name}:{file.stat().st_mtime_ns}"
            if key not in self._sent and _sent(file.name, key):
                self._sent.add(key)

    def _named(self, name: str) -> Path | None:
        """The file of this name; a path to elsewhere is no file's name."""
        return next((file for file in self._files() if file.name == name), None)

    def _files(self) -> list[Path]:
        return sorted(file for file in self._folder.glob(f"*{SUFFIX}") if file.is_file() and not file.is_symlink())


def _sent(name: str, key: str) -> bool:
    """Whether this file is done with; not while Outrider starts, stops, or has as much waiting as it takes."""
    try:
        job_id = asyncio.run(_send(name, key))  # this thread has no event loop of its own
    except StorageUnavailable:
        return False
    except Fault as fault:
        log.warning("%s waits in the inbox: %s", name, fault.message)
        return fault.kind not in ("unavailable", "limit")
    log.info("%s is job %s", name, job_id)
    return True


async def _send(name: str, key: str) -> str:
    session = await open_session(SESSION)
    return await spawn_background(
        session=session, description=f"Inbox: {name}", prompt=f"{ASKED}{name}", subagent_type=CLERK.name, key=key
    )


def _watch(outrider: Any, inbox: Inbox) -> None:
    with outrider.acting():  # so that the jobs say whose they are
        while True:
            time.sleep(LOOK_S)
            try:
                inbox.look()
            except OSError as error:  # a file that has gone again, a folder that is away
                log.warning("the inbox cannot be read: %s", error)


def register(outrider: Any) -> None:
    """Called by Outrider at its start, in each of its processes."""
    folder = Path(os.environ.get("INBOX_FOLDER", ""))
    if not folder.is_absolute() or not folder.is_dir():
        raise MalformedPlugin("INBOX_FOLDER must name a folder that is there, by its whole path")
    inbox = Inbox(folder)
    outrider.tool(inbox.read_inbox)
    outrider.subagent(CLERK)
    outrider.listener("reports", inbox.write_report, "background.completed")
    threading.Thread(target=_watch, args=(outrider, inbox), name="inbox", daemon=True).start()
