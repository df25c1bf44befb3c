"""Usage: what model calls have cost, as a value that adds up. It is counted and kept elsewhere."""

from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class Usage:
    """How many model calls there were, their tokens, and the tools that they called."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    tool_calls: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))

    @property
    def tokens(self) -> int:
        """All tokens, as limits count them."""
        return self.input_tokens + self.output_tokens


SUMS = tuple(Usage.__dataclass_fields__)  # the columns that hold one
ADDED = ", ".join(f"{name} = {name} + :{name}" for name in SUMS)
