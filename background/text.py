"""Text as it may be stored: made clean once, where it enters."""

import re

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean(text: str) -> str:
    """`text` with each NUL and lone surrogate replaced by U+FFFD: neither can be stored or indexed."""
    return _UNSTORABLE.sub("\ufffd", text)


def clip(text: str, limit: int) -> str:
    """`text` on one line, at most `limit` characters, with an ellipsis where something was cut."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
