"""What the tools of one turn reach, and what of that they may be given."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.tools import Tool

from agent.ingest import Sources
from agent.subagents import Registry
from agent.web_pages import Pages
from background.database import Database
from background.job_rows import Job
from background.jobs import Spec
from background.memory_uses import Use
from background.queue import Run
from background.sessions import Session
from background.tasks import Task
from knowledge.backend import Backend

Arguments = dict[str, Any]
Function = Callable[..., Awaitable[str]]
Foreground = Callable[[list[Spec]], Awaitable[list[str]]]
Refuses = Callable[[str], Awaitable[str | None]]
NOT_YET = (
    "No result exists yet, and you will be notified in this conversation when the work has ended: do not poll, do not send "
    "it out again. Tell the user what went out and end your turn."
)
NOT_YET_INCOGNITO = (
    "No result exists yet. This conversation is incognito, so its work wakes nobody: you are told of what has ended with the "
    "user's next message. Do not poll, do not send it out again. Tell the user what went out, and that, and end your turn."
)
NOT_YET_IN_A_JOB = (
    "No result exists yet. You will be notified of what has ended, between two of your steps, while you have other work to "
    "do: do not poll, do not send it out again. What ends after you is told to the conversation that you work for."
)


@dataclass(frozen=True)
class Desk:
    """What the tools of one turn reach."""

    db: Database
    knowledge: Backend
    registry: Registry
    run: Run
    task: Task
    session: Session
    step: Callable[[], int]
    foreground: Foreground
    added: Mapping[str, Tool[Any]] = field(default_factory=dict)  # what plugins and MCP servers have added, by name
    external: frozenset[str] = frozenset()  # of these tools, those whose answers come from outside
    refuses: Refuses | None = None  # the output guard: what is sent out is seen by its user at once
    pages: Pages | None = None  # of the web, where they may be read
    sources: Sources = Sources(pages=False)  # noqa: RUF009 - frozen; what may be taken into the knowledge store
    job: Job | None = None  # whose turn it is, if it is one's
    sends: bool = True  # whether it may send out at all: no subagent in the foreground may
    uses: list[tuple[str, Use]] = field(default_factory=list)  # items of memory that it was given, not noted yet
    reads: dict[str, tuple[Any, int]] = field(default_factory=dict)  # what was seen of a job, and how often that

    @property
    def not_yet(self) -> str:
        """What is said of work that is out."""
        if self.job:
            return NOT_YET_IN_A_JOB
        return NOT_YET_INCOGNITO if self.session.incognito else NOT_YET

    def used(self, ctx: RunContext[Any], uses: list[Use]) -> None:
        """A call brings these items of memory: they are noted with the step that keeps what it brought."""
        self.uses.extend((f"tool:{self.step()}:{ctx.tool_call_id}", use) for use in uses)

    def sent(self, job: Job) -> bool:
        """Whether this job was sent out from here: it is told here, and may be stopped from here."""
        return job.parent == self.job.id if self.job else job.session == self.session.uid

    def knows(self, job: Job) -> bool:
        """Whether a job of the owner's is one for this turn: what is incognito, for its own session's alone."""
        return not job.incognito or job.session == (self.job.session if self.job else self.session.uid)

    def may_read(self, job: Job) -> bool:
        """Whether the turn may be given a job's words: what is incognito, where what is said is so too."""
        return not job.incognito or (self.session.incognito and self.knows(job))
