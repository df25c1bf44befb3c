"""Arguments of a tool's call, as a model has written them: what is none of what is allowed becomes what it would be without."""

from typing import Any


def number_of(asked: Any, default: int, least: int, most: int) -> int:
    """A whole number within these bounds."""
    if isinstance(asked, bool) or not isinstance(asked, int):
        return default
    return min(max(asked, least), most)
