"""How much of what was said and answered may be kept: the four levels, and the one function for every copy.

The strictest level of all that have a say holds, and nothing raises it. What a level keeps is decided here alone: of a
text by `keep`, of a tree of JSON by `keep_json`.
"""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from background.credentials import MASK, names_credential
from background.masks import Masks
from background.redaction import redact as redact_by_default

LEVELS = ("full", "redacted", "metadata", "none")  # from what keeps the most to what keeps nothing
FILE = {"raw", "filename", "mediaType", "metadata"}  # the fields of a protocol part that is a file
Redact = Callable[[str], str]


def strictest(*levels: str) -> str:
    """The one of these levels that keeps the least; of none, `full`. Raises `ValueError` for what is no level."""
    return LEVELS[max(map(_rank, levels), default=0)]


def can_keep(level: str) -> bool:
    """Whether a result can be kept at this level."""
    return _rank(level) <= _rank("redacted")


def above(level: str) -> list[str]:
    """The levels that keep more than this one."""
    return list(LEVELS[: _rank(level)])


def _rank(level: str) -> int:
    if level not in LEVELS:
        raise ValueError(f"{level!r} is no answer level")
    return LEVELS.index(level)


def keep(level: str, text: str, redact: Redact) -> str:
    """What this level keeps of a text: all of it, all of it masked, or nothing (an empty text)."""
    if level == "full":
        return text
    return redact(text) if can_keep(level) else ""


def keep_json(level: str, value: Any, redact: Redact) -> Any:
    """What this level keeps of a tree of JSON: all of it, all of it with every string masked, or nothing (`None`).

    A string that holds JSON is masked as the tree that it is, so that it can be read afterwards. Keys stay, but for
    those that are personal data themselves; a part that is a file is masked if the file is text. `value` is not changed.
    """
    if level == "full":
        return value
    if not can_keep(level):
        return None
    known = redact.of_tree(value) if isinstance(redact, Masks) else None
    return _masked(value, redact) if known is None else known


def _masked(value: Any, redact: Redact) -> Any:
    match value:
        case str():
            return _masked_text(value, redact)
        case Mapping():
            return _masked_fields(value, redact)
        case list() | tuple():
            return [_masked(item, redact) for item in value]
        case int() if not isinstance(value, bool):
            written = str(value)
            masked = redact(written)  # a card's number may stand without quotes
            return value if masked == written else masked
    return value


def _masked_fields(fields: Mapping[str, Any], redact: Redact) -> dict[str, Any]:
    masked: dict[str, Any] = {}
    file = fields.get("raw") if fields.keys() <= FILE else None
    for name, value in fields.items():
        # By the house's redactor: another's could change the names that a protocol gives.
        shown = kept = redact_by_default(name)
        while kept != name and shown in masked:
            shown += MASK
        secret = names_credential(name) and isinstance(value, str | int) and not isinstance(value, bool) and value != ""
        masked[shown] = MASK if secret else _masked(value, redact)
    if isinstance(file, str):
        masked["raw"] = _masked_file(file, redact)
    return masked


def _masked_file(raw: str, redact: Redact) -> str:
    """A file in base64: masked if it is text, and otherwise what it is."""
    bare = raw.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        content = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except ValueError:
        return redact(raw)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return raw
    masked = redact(text)
    return raw if masked == text else base64.b64encode(masked.encode()).decode()


def _masked_text(text: str, redact: Redact) -> str:
    tree = _tree_in(text)
    if tree is None:
        return redact(text)
    try:
        masked = _masked(tree, redact)
        return text if masked == tree else json.dumps(masked, ensure_ascii=False)
    except RecursionError:
        return redact(text)


def _tree_in(text: str) -> Any:
    """The object or list that the text is the JSON of, or None."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
