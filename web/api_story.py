"""`GET /api/background/{id}/story`: a job's whole story in order, by its id alone.

For its owner, and not with a share: it names turns and tasks beside the one that was shared.
"""

from starlette.routing import BaseRoute, Route

from background import expenses, job_rows, stories
from background.database import Tx
from background.expenses import Entry
from background.stories import Line, Story
from background.times import rfc3339
from web.door import Call, Json, door
from web.house import House


async def get_story(call: Call) -> Json:
    story, spent = await call.db.read(_story, call.owner, call.id)
    return {
        "job": call.id,
        "level": story.level,
        "story": [_line(line) for line in story.lines],
        "expenses": [_entry(entry) for entry in spent],
        "waiting": [{**waits, "due_at": rfc3339(waits["due_at"])} for waits in story.waiting],
    }


def _story(tx: Tx, owner: str, job_id: str) -> tuple[Story, list[Entry]]:
    return stories.of_job(tx, job_rows.get(tx, owner, job_id)), expenses.of_job(tx, job_id)


def _line(line: Line) -> Json:
    return {"at": rfc3339(line.at), "what": line.what, **line.facts, **({"error": line.error} if line.error else {})}


def _entry(entry: Entry) -> Json:
    """What one part of one of the job's turns has cost."""
    which = {"task_id": entry.task_id, "part": entry.part, "cause": entry.cause, "at": rfc3339(entry.at)}
    return which | vars(entry.usage)


def routes(house: House) -> list[BaseRoute]:
    return [Route("/api/background/{id}/story", door(house, get_story), methods=["GET"])]
