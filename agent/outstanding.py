"""What is out: the jobs that a conversation waits for, as its model is told of them at the beginning of each turn.

They come from the rows and never from the conversation, which may have been condensed since they were sent out.
"""

from collections.abc import Sequence

from agent.notifications import escape
from background.jobs import Job
from background.text import clip

OUT = (
    "Background work that is out, by Outrider's own records. It has no result yet that you have been told of: you are "
    "notified when it has ended. Do not send it out again, and do not poll."
)
MOST = 64  # that are named
DESCRIPTION_CHARS = 200
IN_WORDS = {"completed": "ended, not told yet", "failed": "ended, not told yet", "canceled": "canceled, not told yet"}


def outstanding(jobs: Sequence[Job]) -> str:
    """The jobs by id, type, status and description, one a line; empty where nothing is out."""
    if not jobs:
        return ""
    lines = [_line(job) for job in jobs[:MOST]]
    more = [f"- and {len(jobs) - MOST} more"] if len(jobs) > MOST else []
    return "\n".join([OUT, *lines, *more])


def _line(job: Job) -> str:
    status = IN_WORDS.get(job.status, job.status)
    return f"- {job.id} {job.subagent_type}, {status}: {escape(clip(job.description, DESCRIPTION_CHARS))}"
