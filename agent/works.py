"""Deterministic work: kinds that a job can be of beside subagents. What each is done by, and what a job of it is given.

A job of a kind is a job like any other but for having no model: its handler is one like a profile's, and its offer
(`offers.of_works`) one that no client can ask for. It runs nothing but coroutines that it was given.
"""

import json
import secrets
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from agent.handlers import Handler, Work, WorkFailed
from agent.spawning import LABEL, MAX_DESCRIPTION, MAX_PROMPT
from background.errors import Fault
from background.jobs import Spec
from background.text import clean, clip

OFFER = "work:"  # before a kind, the name of its offer: no profile can be called so
INGEST = "knowledge_ingest"
COROUTINE = "coroutine"
LOST = "It was a coroutine, and ended with the process that it was given to."


@dataclass(frozen=True)
class Kind:
    """A kind of work. An `idempotent` one is run again after a crash, any other is told as interrupted."""

    handler: Handler
    idempotent: bool = False


def spec_of_work(kinds: Collection[str], kind: Any, args: Any, description: str = "") -> Spec:
    """The spec of a job of this kind, with arguments that JSON can hold. Raises a fault that names the field."""
    if not isinstance(kind, str) or kind not in kinds:
        there = ", ".join(sorted({*kinds} - {COROUTINE})) or "none"
        raise Fault("invalid", f"There is no such kind of work; there are: {there}.", field="kind")
    if not isinstance(args, dict):
        raise Fault("invalid", "args must be an object.", field="args")
    if not isinstance(description, str) or len(description) > MAX_DESCRIPTION:
        raise Fault("invalid", f"description is a text of at most {MAX_DESCRIPTION} characters.", field="description")
    try:
        written = clean(json.dumps(args, allow_nan=False, ensure_ascii=False, sort_keys=True))
    except (ValueError, TypeError, RecursionError):
        raise Fault("invalid", "args must be what JSON can hold.", field="args") from None
    if len(written) > MAX_PROMPT:
        raise Fault("invalid", f"args have more than {MAX_PROMPT} characters as JSON.", field="args")
    return Spec(clip(clean(description).strip(), LABEL) or kind, written, kind, (), deterministic=True)


class Loose:
    """Coroutines that were given as work. Each is this process's alone, and runs once."""

    def __init__(self) -> None:
        self._waiting: dict[str, Coroutine[Any, Any, Any]] = {}

    def take(self, coroutine: Coroutine[Any, Any, Any]) -> dict[str, str]:
        """The arguments of a job that is to run it."""
        token = secrets.token_hex(8)
        self._waiting[token] = coroutine
        return {"coroutine": token}

    def drop(self, args: Mapping[str, str]) -> None:
        """It is not to run."""
        if left := self._waiting.pop(args["coroutine"], None):
            left.close()

    def close(self) -> None:
        """None that is left will run."""
        for token in list(self._waiting):
            self.drop({"coroutine": token})

    async def run(self, work: Work) -> Any:
        """The handler of the kind. Raises `WorkFailed` in a process that was not given it."""
        found = self._waiting.pop((work.data or {}).get("coroutine", ""), None)
        if found is None:
            raise WorkFailed(LOST)
        return await found

    @property
    def kind(self) -> Kind:
        """What `spawn_work` makes of a coroutine."""
        return Kind(Handler(COROUTINE, self.run, stoppable=True))
