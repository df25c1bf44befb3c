"""Gates: which of a model's calls wait for a person, what that person is asked, and what the model is told instead.

Pure: it runs no tool and stores no answer. Where nobody can be asked, in the background, each such call is refused in
words, and after the third the worker has no tools any more.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import Tool

from background.questions import Answer, Question
from background.text import clean

ASK_USER = "ask_user"
REFUSALS = 3  # after so many a worker has no tools any more
DENIED = "DENIED: the user did not approve of this call, so it was not made. Do not try the same in another way."
UNFIT = (
    "REFUSED: nobody was asked, because the call does not fit the tool's schema, or has another's id. It was not made."
)
INTERRUPTED = (
    "NOT RUN: its arguments were masked by the privacy settings when the turn was interrupted. Ask again, or end."
)
UNSEEN = (
    "REFUSED: nobody was asked, because the privacy settings mask the arguments of this call before anybody could see them. "
    "It was not made. Do without what they mask, or end."
)
LAST = f" This was call {REFUSALS} of this kind: you have no tools any more. End now, with what you have."
MARK = 8


@dataclass(frozen=True)
class Gates:
    """The gates of one toolset: the tools that need an approval, by name, and whether `ask_user` is one of it.

    `parks` says whether a person can be asked at all: the turn then waits for the answer. `lasting` are tools whose calls
    go on when the turn is stopped.
    """

    approvals: Mapping[str, Tool[Any]] = field(default_factory=dict)
    asking: bool = False
    parks: bool = True
    lasting: frozenset[str] = frozenset()

    def waits(self, name: str) -> bool:
        """Whether a call of this tool waits for a person."""
        return name in self.approvals or (self.asking and name == ASK_USER)

    def question(self, call: ToolCallPart, key: str) -> Question | None:
        """What must be asked before this call is made, at the step `key`.

        None for a call that waits for nobody, and for one whose arguments do not fit: there is nothing to approve of.
        The key of an approval changes with the tool's schema, so one that was given for another shape of it is none.
        """
        if call.tool_name in self.approvals:
            tool = self.approvals[call.tool_name]
            if (arguments := _fitting(tool, call)) is None:
                return None
            shape = json.dumps([tool.name, tool.function_schema.json_schema], sort_keys=True, default=str)
            mark = hashlib.sha256(shape.encode()).hexdigest()[:MARK]
            text = f"The agent wants to call {tool.name}. Do you approve of this call?"
            return Question("approval", f"{key}:{mark}", text, detail=arguments)
        text = _asked(call) if self.waits(call.tool_name) else ""
        return Question("question", key, text) if text else None

    def refused(self, calls: Sequence[ToolCallPart]) -> int:
        """How many of these calls were refused, where nobody can be asked."""
        return 0 if self.parks else sum(self.waits(call.tool_name) for call in calls)

    def refusal(self, name: str, count: int) -> str:
        """What the model is told of a call that nobody can be asked about, the `count`-th of its turn."""
        why = (
            "REFUSED: nobody can be asked here, and no answer will come. Decide for yourself, and write down what you assumed."
            if name == ASK_USER
            else f"REFUSED: {name} needs a person's approval, and nobody can be asked here. It was not called. "
            "Do what can be done without it, and say in your report what could not."
        )
        return why + (LAST if count >= REFUSALS else "")


def in_words(answer: Answer) -> str:
    """What a user has answered, as the result of the tool that asked."""
    return answer.text if answer.text.strip() else json.dumps(answer.data, ensure_ascii=False)


def _fitting(tool: Tool[Any], call: ToolCallPart) -> str | None:
    """The arguments as they are shown to whoever approves, all of them; None where they do not fit the tool."""
    try:
        given = call.args_as_dict(raise_if_invalid=True)
        tool.function_schema.validator.validate_json(json.dumps(given))
        return clean(json.dumps(given, ensure_ascii=False, indent=2))
    except (ValidationError, ValueError, AssertionError, TypeError):
        return None


def _asked(call: ToolCallPart) -> str:
    try:
        text = call.args_as_dict(raise_if_invalid=True).get("question")
    except (ValueError, AssertionError):
        return ""
    return clean(text).strip() if isinstance(text, str) else ""
