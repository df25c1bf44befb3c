"""A message as an A2A client sends it: its parts, its text, the skill it asks for, and the mark that tells it again.

Pure, and strict: -32602 and -32005 name the field and never its value. What it leaves standing is the protocol's JSON,
fit to be stored and sent out again as it is.
"""

import base64
import binascii
import hashlib
import re
from itertools import chain, zip_longest
from typing import Any

from background.values import canonical
from web import a2a_fields as fields
from web.a2a_errors import A2AError, invalid
from web.a2a_fields import Limits
from web.claims import is_reserved, is_session_id

CONTENT = ("text", "raw", "url", "data")
ABOUT_PART = ("metadata", "filename", "mediaType")
MAY_BE_WHOLE = re.compile(
    r"\.0[,}\]]|[0-9]e\+"
)  # in a canonical text: a number that may be, or words that look like one
PLACE = "\0"  # where data stands that is written already: no text of a message has one
PLACED = canonical(PLACE)
FILE_CHARS = 100_000  # of each file that a model is given; the whole message is bounded by its size
MESSAGE_FIELDS = ("messageId", "contextId", "taskId", "role", "metadata", "extensions", "referenceTaskIds")


def checked(sent: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """The message with the fields that the protocol knows, each of them in order. A2AError -32602, -32005."""
    fields.required_id(sent, "messageId", "message.", limits)
    _check_context_id(sent, limits)
    fields.optional_id(sent, "taskId", "message.", limits)
    if sent.get("role") != "ROLE_USER":
        raise invalid("message.role", "must be ROLE_USER")
    fields.metadata_of(sent, "message.", limits)
    fields.strings(sent, "extensions", "message.", limits)
    fields.strings(sent, "referenceTaskIds", "message.", limits)
    return fields.kept(sent, MESSAGE_FIELDS) | {"parts": _parts(sent.get("parts"), limits)}


def text_of(message: dict[str, Any], limits: Limits) -> str:
    """The text parts of a checked message, a line break between them. A2AError -32602 where it is all blank."""
    parts = message["parts"]
    texts = [part["text"] for part in parts if "text" in part]
    joined = "\n".join(texts)
    field = "message.parts[0].text" if len(parts) == 1 else "message.parts"
    if len(joined) > limits.text_chars:
        raise invalid(field, f"text must not be longer than {limits.text_chars} characters")
    if len(texts) == len(parts) and not joined.strip():
        raise invalid(field, "must not be blank")
    return joined


def spelled(message: dict[str, Any]) -> tuple[str, str]:
    """What a checked message is told by when its id comes again, and how a model reads it.

    The first is the same for the same content in any order of members. A whole number is the same with a fraction of
    nothing: some clients and some wires have no other numbers. The second is its text, structured data as JSON, files in a
    frame with name and type; of one that is no text no more is told, and `unreadable` finds it before a model is asked.
    A2AError -32602 for NaN and Infinity, which no JSON text can hold.
    """
    # Each once, as a megabyte of it takes long.
    data = [
        fields.finite(part["data"], f"message.parts[{index}].data") if "data" in part else ""
        for index, part in enumerate(message["parts"])
    ]
    words = "\n\n".join(map(_in_words, message["parts"], data))
    return _fingerprint(message, data), words


def _in_words(part: dict[str, Any], data: str) -> str:
    if "text" in part:
        return part["text"]
    if "data" in part:
        return data
    told = ", ".join(filter(None, [part.get("filename"), part.get("mediaType"), part.get("url")])) or "without a name"
    text = _file_text(part)
    if text is None:
        return f"[a file: {told}]"
    left = len(text) - FILE_CHARS
    end = f"cut here: {left} more characters are not shown" if left > 0 else "end of the file"
    return f"[a file: {told}]\n{text[:FILE_CHARS]}\n[{end}]"


def unreadable(message: dict[str, Any]) -> tuple[str, str] | None:
    """The first part of a checked message that no model can be given in words: its field, and what it must be."""
    for index, part in enumerate(message["parts"]):
        at = f"message.parts[{index}]"
        if "url" in part:
            return f"{at}.url", "must bring its content along: nothing is fetched from an address"
        if "raw" in part and _file_text(part) is None:
            return f"{at}.raw", "must be text in UTF-8"
    return None


def _file_text(part: dict[str, Any]) -> str | None:
    """A raw part's text; None for what is no text. Which media types may be is checked before."""
    try:
        text = _bytes(part["raw"]).decode("utf-8-sig")
    except (KeyError, UnicodeDecodeError):
        return None
    return None if "\0" in text else text


def skill_of(message: dict[str, Any], limits: Limits) -> str:
    """The profile that a checked message asks for. A2AError -32602 for one that is not enabled."""
    skill = message.get("metadata", {}).get("skill")
    if skill is None:
        return limits.default_skill
    if not isinstance(skill, str) or skill not in limits.skills:
        raise invalid("message.metadata.skill", f"must be one of {', '.join(limits.skills)}")
    return skill


def data_of(message: dict[str, Any]) -> Any:
    """The value of a checked message's first data part; None where it has none."""
    return next((part["data"] for part in message["parts"] if "data" in part), None)


def question_of(message: dict[str, Any]) -> str | None:
    """The digest of the question that a checked message answers, if it says so. A2AError -32602."""
    question = message.get("metadata", {}).get("question")
    if question is not None and not isinstance(question, str):
        raise invalid("message.metadata.question", "must be a string")
    return question


def steers(message: dict[str, Any]) -> bool:
    """Whether a checked message is to be taken up by the turn at work in its context. A2AError -32602."""
    steer = message.get("metadata", {}).get("steer", False)
    if not isinstance(steer, bool):
        raise invalid("message.metadata.steer", "must be true or false")
    return steer


def _fingerprint(message: dict[str, Any], data: list[str]) -> str:
    parts = [part | {"data": PLACE} if "data" in part else part for part in message["parts"]]
    pieces = canonical(message | {"parts": parts}).split(PLACED)
    text = "".join(chain.from_iterable(zip_longest(pieces, filter(None, data), fillvalue="")))
    if (".0" in text or "e+" in text) and MAY_BE_WHOLE.search(text):
        text = canonical(_whole(message))
    return hashlib.sha256(text.encode()).hexdigest()


def _whole(value: Any) -> Any:
    """The value with each number that is whole as an integer."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _whole(inner) for key, inner in value.items()}
    return [_whole(inner) for inner in value] if isinstance(value, list) else value


def _check_context_id(message: dict[str, Any], limits: Limits) -> None:
    value = fields.string(message, "contextId", "message.", limits.id_chars)
    # A reserved one is left to `access.check_claims`, which knows the caller and writes the audit.
    if value is not None and not is_session_id(value) and not is_reserved(value):
        raise invalid("message.contextId", "must be 1 to 128 of the characters A-Z a-z 0-9 . _ : -")


def _parts(parts: Any, limits: Limits) -> list[dict[str, Any]]:
    if not isinstance(parts, list) or not parts:
        raise invalid("message.parts", "must be a list of at least one part")
    if len(parts) > limits.parts:
        raise invalid("message.parts", f"must not have more than {limits.parts} parts")
    return [_part(part, f"message.parts[{index}]", limits) for index, part in enumerate(parts)]


def _part(part: Any, at: str, limits: Limits) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise invalid(at, "must be an object")
    part = fields.by_json_names(part, f"{at}.")
    # A null is a value of `data` and no value of any other field.
    present = [key for key in CONTENT if key in part and (key == "data" or part[key] is not None)]
    if len(present) != 1:
        raise invalid(at, f"must have exactly one of {', '.join(CONTENT)}")
    content, at = present[0], at + "."
    if content != "data" and not isinstance(part[content], str):
        raise invalid(at + content, "must be a string")
    if content == "raw" and not _is_base64(part["raw"]):
        raise invalid(at + "raw", "must be base64")
    if content == "url" and fields.string(part, "url", at, limits.name_chars) is None:
        raise invalid(at + "url", "must not be empty")
    fields.metadata_of(part, at, limits)
    fields.string(part, "filename", at, limits.name_chars)
    _check_media_type(part, at, limits)
    return {content: part[content]} | fields.kept(part, ABOUT_PART)


def _check_media_type(part: dict[str, Any], at: str, limits: Limits) -> None:
    media_type = fields.string(part, "mediaType", at, limits.name_chars)
    if media_type is None or media_type.partition(";")[0].strip().lower() in limits.input_modes:
        return
    supported = ", ".join(sorted(limits.input_modes))
    told = {"field": f"{at}mediaType", "supported": supported}
    raise A2AError("CONTENT_TYPE_NOT_SUPPORTED", f"{at}mediaType: must be one of {supported}", metadata=told)


def _is_base64(text: str) -> bool:
    try:
        _bytes(text)
    except (binascii.Error, ValueError):
        return False
    return True


def _bytes(text: str) -> bytes:
    """Either alphabet, padded or not: the protocol's JSON allows all four."""
    bare = text.replace("-", "+").replace("_", "/").rstrip("=")
    return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
