"""One field of a request at a time: what may stand there, and -32602 naming the field where something else does.

`given` is the object that the field is in, `at` the way to that object as the client wrote it, ending in a dot. A
refusal says what is allowed and never repeats what was sent. None, and empty text, mean that a field is not set.
"""

import re
from dataclasses import dataclass
from typing import Any

from background.values import canonical, path_deeper_than
from web.a2a_card import INPUT_MODES
from web.a2a_errors import invalid

# The official types take no deeper data on every wire.
NESTING = 32
INT32_MAX = 2**31 - 1
# The JSON of protocol buffers is written with names in camel case, and read with those of the .proto file too: a filter
# that is left out for its spelling would be a list of everything.
NAMES = (
    *("contextId", "taskId", "messageId", "referenceTaskIds", "mediaType", "acceptedOutputModes", "returnImmediately"),
    *(
        "historyLength",
        "taskPushNotificationConfig",
        "pageSize",
        "pageToken",
        "statusTimestampAfter",
        "includeArtifacts",
    ),
)
PROTO_NAMES = {re.sub("([A-Z])", lambda found: f"_{found[1].lower()}", name): name for name in NAMES}


@dataclass(frozen=True)
class Limits:
    """What a message may hold. `skills` are the enabled profiles, `input_modes` the media types of the card."""

    skills: tuple[str, ...] = ("chat",)
    input_modes: frozenset[str] = frozenset(INPUT_MODES)
    parts: int = 64
    text_chars: int = 1_000_000
    metadata_chars: int = 65_536
    id_chars: int = 256
    listed: int = 64
    name_chars: int = 2048

    @property
    def default_skill(self) -> str:
        """What a message that names no skill gets."""
        return "chat" if "chat" in self.skills else self.skills[0]


def kept(given: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    """Those of the fields that say something: null and empty text are the protocol's spelling of "unset"."""
    return {key: given[key] for key in fields if given.get(key) not in (None, "")}


def by_json_names(given: dict[str, Any], at: str) -> dict[str, Any]:
    """An object of the protocol, its fields by their names in JSON, however they were spelled."""
    if PROTO_NAMES.keys().isdisjoint(given):
        return given
    for name, in_json in PROTO_NAMES.items():
        if name in given and in_json in given:
            raise invalid(at + in_json, "must be given once")
    return {PROTO_NAMES.get(name, name): value for name, value in given.items()}


def object_at(given: dict[str, Any], key: str, at: str) -> dict[str, Any] | None:
    """An object of the protocol, None where it is not set."""
    value = _object_at(given, key, at)
    return by_json_names(value, f"{at}{key}.") if value else value


def _object_at(given: dict[str, Any], key: str, at: str) -> dict[str, Any] | None:
    value = given.get(key)
    if value is not None and not isinstance(value, dict):
        raise invalid(at + key, "must be an object")
    return value


def string(given: dict[str, Any], key: str, at: str, most: int) -> str | None:
    """Text of at most `most` characters."""
    value = given.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise invalid(at + key, "must be a string")
    if len(value) > most:
        raise invalid(at + key, f"must not be longer than {most} characters")
    return value or None


def params(sent: Any) -> dict[str, Any]:
    """The params of a method, as an object of the protocol."""
    if not isinstance(sent, dict):
        raise invalid("params", "must be an object")
    # An interface of ours never asks for a tenant, and nobody's scope is anything but their own.
    if sent.get("tenant") not in (None, ""):
        raise invalid("tenant", "must be empty: this server has no tenants")
    return by_json_names(sent, "")


def strings(given: dict[str, Any], key: str, at: str, limits: Limits) -> None:
    """A list of short texts; only checked, as nothing here is decided by one."""
    values = given.get(key)
    if values is None:
        return
    if not isinstance(values, list):
        raise invalid(at + key, "must be a list")
    if len(values) > limits.listed:
        raise invalid(at + key, f"must not have more than {limits.listed} items")
    for index, value in enumerate(values):
        if not isinstance(value, str) or len(value) > limits.name_chars:
            raise invalid(f"{at}{key}[{index}]", f"must be a string of at most {limits.name_chars} characters")


def optional_id(given: dict[str, Any], key: str, at: str, limits: Limits) -> str | None:
    """An id that a client made, or that it was once given."""
    value = string(given, key, at, limits.id_chars)
    if value is not None and (not value.isprintable() or value.isspace()):
        raise invalid(at + key, "must be printable and not blank")
    return value


def required_id(given: dict[str, Any], key: str, at: str, limits: Limits) -> str:
    """An id that must be there."""
    value = optional_id(given, key, at, limits)
    if value is None:
        raise invalid(at + key, "is required")
    return value


def flag(given: dict[str, Any], key: str, at: str) -> bool:
    """True or false, false where it is not set."""
    value = given.get(key)
    if value is not None and not isinstance(value, bool):
        raise invalid(at + key, "must be true or false")
    return bool(value)


def natural(given: dict[str, Any], key: str, at: str) -> int | None:
    """A whole number from 0 on that fits the protocol's 32 bits; never one that is written as a text or a fraction."""
    value = given.get(key)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= INT32_MAX:
        raise invalid(at + key, f"must be a whole number from 0 to {INT32_MAX}")
    return value


def metadata_of(given: dict[str, Any], at: str, limits: Limits) -> dict[str, Any] | None:
    """The object's `metadata`, bounded in depth and length."""
    value = _object_at(given, "metadata", at)
    if not value:
        return value
    if path_deeper_than(NESTING, value) is not None:
        raise invalid(f"{at}metadata", f"must not be nested deeper than {NESTING} levels")
    if len(finite(value, f"{at}metadata")) > limits.metadata_chars:
        raise invalid(f"{at}metadata", f"must not be longer than {limits.metadata_chars} characters")
    return value


def finite(value: Any, field: str) -> str:
    """The canonical text of a value without NaN and Infinity."""
    try:
        return canonical(value)
    except ValueError:
        raise invalid(field, "NaN and Infinity are not JSON") from None
