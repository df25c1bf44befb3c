"""A guard stands between a turn's answers and its tools: no step begins before what its calls wait for is there.

It knows the calls of each answer and what was stored; what waits for whom stands in `gates.py`. It runs no tool.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from pydantic_ai.messages import ToolCallPart

from agent.gates import ASK_USER, DENIED, INTERRUPTED, REFUSALS, UNFIT, UNSEEN, Gates, in_words
from background import masked
from background.questions import Answer, Parks, Question

Calls = Sequence[Sequence[ToolCallPart]]


class KeepsAsking(Exception):
    """The model went on calling tools after the last refusal had left it none."""


class Guard:
    """The guard of one turn: `calls` gives the calls of each of its answers so far, `stored` its checkpoints."""

    def __init__(self, gates: Gates, stored: Mapping[str, str], calls: Callable[[], Calls]) -> None:
        self._gates, self._stored, self._calls = gates, stored, calls
        self._altered: frozenset[int] = frozenset()  # of the newest answer, which has its real arguments here
        self._refused = self._refusals(calls()[:-1])  # before the newest answer

    def _refusals(self, answers: Calls) -> int:
        return self._gates.refused([call for calls in answers for call in calls])

    def kept_altered(self, places: Collection[int]) -> None:
        """The newest answer was kept, its calls at these places with other arguments than they have."""
        self._altered = frozenset(places)

    def before_request(self) -> None:
        """The model is asked again: what was refused so far has been told to it."""
        self._refused = self._refusals(self._calls())

    @property
    def disarmed(self) -> bool:
        """Whether the last refusal has left the model no tools."""
        return self._refused >= REFUSALS

    def require_answers(self) -> None:
        """Nothing, once all that the newest answer's calls wait for is there; raises `Parks` with the first that is not.

        No tool of a step runs before that, so whoever answers decides about a step that has not begun. Raises
        `KeepsAsking` where there are no tools any more.
        """
        if self.disarmed and self._newest:
            raise KeepsAsking
        for call in self._newest if self._gates.parks else []:
            question = self._question(call)
            if question and self.key_of(call.tool_call_id) not in self._stored and not self._answer_to(question):
                raise Parks(question)

    def key_of(self, call_id: str) -> str:
        """The key of a step: providers repeat the ids of calls, so the number of answers before is part of it."""
        return f"tool:{len(self._calls())}:{call_id}"

    def verdict(self, name: str, call_id: str) -> str | None:
        """What stands instead of this call of the newest answer's, in words; None where it is to be made."""
        waits = self._gates.waits(name)
        if self._from_a_masked_copy(name, call_id) and (self._gates.parks or not waits):
            return INTERRUPTED
        if not waits:
            return None
        place = [call.tool_call_id for call in self._newest].index(call_id)
        if not self._gates.parks:
            return self._gates.refusal(name, self._refused + self._gates.refused(self._newest[: place + 1]))
        question = self._question(self._newest[place])
        answer = self._answer_to(question) if question else None
        if question is None or answer is None:
            return UNSEEN if name != ASK_USER and call_id in self._ids(self._altered) else UNFIT
        if question.kind == "question":
            return in_words(answer)
        return None if answer.approved is True else DENIED

    def settled(self, name: str, call_id: str) -> bool:
        """Whether this call of the newest answer is not made any more, whatever its arguments are."""
        return self.key_of(call_id) in self._stored or self._from_a_masked_copy(name, call_id)

    def _from_a_masked_copy(self, name: str, call_id: str) -> bool:
        """Whether only a masked copy is left of this call. A question that is masked was asked so, and can be answered."""
        return name != ASK_USER and call_id in self._ids(masked.places_in(self._stored, len(self._calls())))

    def _ids(self, places: Collection[int]) -> set[str]:
        return {call.tool_call_id for place, call in enumerate(self._newest) if place in places}

    @property
    def _newest(self) -> Sequence[ToolCallPart]:
        answers = self._calls()
        return answers[-1] if answers else []

    def _question(self, call: ToolCallPart) -> Question | None:
        """What is asked before this call. None too where two calls of a step have one id: which is meant could not be told.

        And None for an approval whose arguments are not kept: who approves would see other ones, and those would be used.
        """
        altered = self._altered | masked.places_in(self._stored, len(self._calls()))
        if call.tool_name != ASK_USER and call.tool_call_id in self._ids(altered):
            return None
        alone = [other.tool_call_id for other in self._newest].count(call.tool_call_id) == 1
        return self._gates.question(call, self.key_of(call.tool_call_id)) if alone else None

    def _answer_to(self, question: Question) -> Answer | None:
        stored = self._stored.get(f"answer:{question.key}")
        return Answer.of(stored) if stored is not None else None
