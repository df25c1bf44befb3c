"""How a turn has ended, in the words of the contract: its artifact or report, its reason, and what is said of it.

Decides nothing of what must follow from an end; that is `terminal.settle`'s.
"""

from agent import loop
from agent.gates import REFUSALS
from agent.guard import KeepsAsking
from agent.loop import Progress, Stalled, TooManySteps, UnfinishedAnswer
from agent.taking_up import Turn
from background import delivery, job_rows, tasks
from background.database import Tx
from background.limits import SECOND
from background.results import artifact_id
from background.terminal import Outcome
from background.times import rfc3339

LoopGaveUp = (Stalled, TooManySteps, KeepsAsking, UnfinishedAnswer)


def cut_short(error: Exception, progress: Progress, stall_s: float, now: int) -> tuple[str, str]:
    """Reason and detail of a turn that the loop gave up; `now` in microseconds since the epoch."""
    match error:
        case Stalled():
            last = rfc3339(now - int(stall_s * SECOND))
            answers = f"after answer {len(progress.answers)}" if progress.answers else "before its first answer"
            answers = "in the middle of an answer" if progress.unfinished.strip() else answers
            return "STALLED", f"The model gave no sign of life for {stall_s:g} s, since {last}, {answers}."
        case KeepsAsking():
            return "NO_REPORT", f"It went on calling tools after the refusal of {REFUSALS} calls that need a person."
        case TooManySteps():
            return "OUTPUT_LIMIT", f"It made {loop.MAX_STEPS} model calls without coming to an end."
        case UnfinishedAnswer(cause="length"):
            return "OUTPUT_LIMIT", "The model's answer was cut off at its length limit."
        case UnfinishedAnswer(cause="content_filter"):
            return "MODEL_FAILED", "The model's provider refused to answer (content filter)."
    return "MODEL_FAILED", "The model's provider ended the answer with an error."


def artifact(turn: Turn, parts: list[dict]) -> dict:
    return {"artifactId": artifact_id(turn.task.id), "parts": parts}


def report_of(progress: Progress) -> str:
    """The final answer; where an earlier text of the same run is longer ("see above"), all texts in order.

    All of them too where a message came after an answer: what was answered before it is part of the report.
    """
    texts = progress.texts
    if len(progress.final_texts) > 1 or (len(texts) > 1 and max(map(len, texts[:-1])) > len(texts[-1])):
        return "\n\n".join(texts)
    return texts[-1] if texts else ""


def failed(progress: Progress, reason: str, detail: str) -> Outcome:
    return Outcome(
        "failed",
        partial="\n\n".join(progress.texts) or None,
        reason=reason,
        detail=detail,
        transcript=loop.dump(progress.turn) if progress.turn else None,
    )


def ended_early(reason: str, detail: str, progress: Progress) -> str:
    text = "\n\n".join(progress.texts)
    return f"{reason}: {detail}" + (f"\n\nWhat there was until then:\n\n{text}" if text else "")


def plain_note(tx: Tx, task_id: str) -> list[str]:
    """What a user reads when the model had nothing to say of what the turn told or sent out; nothing, if it did neither."""
    told = [job_rows.by_id(tx, job_id) for job_id in delivery.attached_to(tx, task_id)]
    sent = job_rows.of_batch(tx, task_id)
    named = [job.said_in(incognito=tasks.by_id(tx, task_id).incognito) for job in told or sent]
    lines = [f"- {job.description}: {job.status} ({job.id})" for job in named]
    if told:
        return ["\n".join(["These have ended; their reports can be opened:", "", *lines])]
    if sent:
        return ["\n".join(["These were sent out:", "", *lines])]
    return []
