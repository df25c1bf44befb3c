"""What a turn works with: the stores, the model, what plugins and profiles offer, and its bounds."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.models import Model

from agent.budgets import Budgets
from agent.ingest import Sources
from agent.mcp import Servers
from agent.offers import Offer
from agent.plugins import Plugins
from agent.taking_up import Shape, Turn
from agent.web_pages import Pages
from background.database import Database
from background.errors import StorageUnavailable
from knowledge.backend import Backend

log = logging.getLogger(__name__)

STORAGE_PAUSE_S = (0.2, 5.0)
Say = Callable[[Turn, str], None]


@dataclass(frozen=True)
class Bounds:
    """How long a turn may work and stay silent, in seconds, and how many subagents run side by side in one."""

    job_timeout_s: float = 3600
    turn_timeout_s: float = 900
    stall_s: float = 300
    side_by_side: int = 4


@dataclass(frozen=True)
class Means:
    """All that a turn needs. `say` publishes text as it comes."""

    db: Database
    knowledge: Backend
    model: Model
    plugins: Plugins
    offers: Mapping[str, Offer]
    shape: Shape
    bounds: Bounds
    say: Say
    levels: Mapping[str, str] = field(default_factory=dict)  # of providers, by name: the most that is kept of theirs
    budgets: Budgets = Budgets()  # noqa: RUF009 - frozen
    context_tokens: int | None = None  # the most that a request to a model may hold, with its answer
    servers: Servers = field(default_factory=Servers)
    sources: Sources = Sources(pages=False)  # noqa: RUF009 - frozen
    pages: Pages | None = None  # of the web, where they may be read
    remembers: bool = True  # whether turns are given memory by themselves

    async def persist(self, function: Callable[..., Any], *args: object) -> Any:
        """Write, and repeat that while nothing can be written: what a model has answered is not asked for again."""
        pause = STORAGE_PAUSE_S[0]
        while True:
            try:
                return await self.db.write(function, *args)
            except StorageUnavailable as error:
                log.warning("the storage cannot be written now: %s", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, STORAGE_PAUSE_S[1])
