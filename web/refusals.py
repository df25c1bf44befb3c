"""How often this process has refused something, by reason. A refusal stores nothing, so its count is not stored either."""

from collections import Counter

_told = Counter[str]()


def count(reason: str) -> None:
    """A client is told so."""
    _told[reason] += 1


def counts() -> dict[str, int]:
    """By reason, since this process began."""
    return dict(_told)
