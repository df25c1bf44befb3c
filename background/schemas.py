"""JSON Schema 2020-12, for what profiles take and give and what forms ask: made once, and bounded at every check.

A check has a budget of steps, asks no network, and runs each pattern on an engine that needs linear time, so that
neither a schema nor what a client sends can hold the process up. It says where and why, and never what stood there.
"""

import json
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend
from pydantic_core import SchemaError as PatternError
from pydantic_core import SchemaValidator
from pydantic_core.core_schema import str_schema
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MOST_CHARS = 65_536  # of a schema, as JSON
DEEPEST = 32  # of a schema, and of a value by the rule of the wire
MOST_STEPS = 50_000  # of one check; a keyword for a value is one
SHOWN_CHARS = 200
KEY_CHARS = 64
# What a schema wants, in words for people: they read them beside a form's field.
TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}
WORDS = {
    "const": "must be {}",
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be more than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} entries",
    "maxItems": "must have at most {} entries",
    "uniqueItems": "must not have the same entry twice",
    "pattern": "must fit the pattern {}",
}
SAMPLES: tuple[Any, ...] = (None, True, 0, "", [], {}, [0], {"": 0})

_left: ContextVar[list[int]] = ContextVar("steps left in this check")


class BadSchema(ValueError):
    """This is no schema that can be used; the text is one line that says why."""


class Unfit(ValueError):
    """A value does not fit: `place` is the way into it, like `.items[3].name`; `why` says what the schema wants."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place}: {why}")
        self.place, self.why = place, why


class _TooMuchWork(Exception):
    """The budget of a check is used up."""


class Schema:
    """A schema, given as an object or as JSON text. Raises `BadSchema`."""

    def __init__(self, given: Any) -> None:
        self.document = _parsed(given)
        _look_through(self.document, 0)
        document = self.document
        if isinstance(document, dict):
            if document.get("$schema", DIALECT).rstrip("#") != DIALECT:
                raise BadSchema(f"$schema must be {DIALECT}")
            # With it, the library would take its own class for the checks, which has no budget.
            document = {key: value for key, value in document.items() if key != "$schema"}
        try:
            Draft202012Validator.check_schema(document)
        except SchemaError as error:
            raise BadSchema(f"at {_place(error) or 'its top'}: does not fit the rules of JSON Schema") from None
        _follow(document)
        self._validator = _Bounded(document, registry=Registry())
        for sample in SAMPLES:  # what never ends shows with these
            try:
                self.check(sample)
            except Unfit as unfit:
                if unfit.why == _ENDLESS:
                    raise BadSchema(unfit.why) from None

    def check(self, value: Any) -> None:
        """Raises `Unfit` for the first thing that does not fit, or that takes too long to find out."""
        token = _left.set([MOST_STEPS])
        try:
            error = next(self._validator.iter_errors(value), None)
        except (_TooMuchWork, RecursionError):
            raise Unfit("", _ENDLESS) from None
        except ArithmeticError:  # a number of hundreds of digits
            raise Unfit("", "has a number that cannot be checked") from None
        finally:
            _left.reset(token)
        if error is not None:
            raise Unfit(_place(error), _why(error))

    def check_text(self, text: str) -> None:
        """Check a text that may be JSON: as the value that it spells, or else as the text that it is. Raises `Unfit`."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            self.check(text)
            return
        try:
            self.check(value)
        except Unfit as unfit:
            try:
                self.check(text)
            except Unfit:
                raise unfit from None


_ENDLESS = "takes too long to check"


def _parsed(given: Any) -> dict[str, Any] | bool:
    try:
        document = json.loads(given) if isinstance(given, str) else json.loads(json.dumps(given, allow_nan=False))
        chars = len(json.dumps(document, allow_nan=False))
    except (ValueError, TypeError, RecursionError):
        raise BadSchema("is not JSON") from None
    if not isinstance(document, dict | bool):
        raise BadSchema("must be an object, or true or false")
    if chars > MOST_CHARS:
        raise BadSchema(f"must not be longer than {MOST_CHARS:,} characters")
    return document


def _look_through(value: Any, depth: int) -> None:
    """What is refused wherever it stands."""
    if depth > DEEPEST:
        raise BadSchema(f"must not be nested deeper than {DEEPEST} levels")
    if isinstance(value, list):
        for inner in value:
            _look_through(inner, depth + 1)
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        if key == "patternProperties" and isinstance(inner, dict):
            raise BadSchema("patternProperties cannot be used here")
        if key in ("$ref", "$dynamicRef") and isinstance(inner, str) and not inner.startswith("#"):
            raise BadSchema(f"{key} must stay within the schema, and begin with #")
        if key in ("$schema", "$id") and depth and isinstance(inner, str):
            raise BadSchema(f"{key} may stand at the top only")
        if key == "pattern" and isinstance(inner, str):
            _matcher(inner)
        _look_through(inner, depth + 1)


def _follow(document: dict[str, Any] | bool) -> None:
    """Every reference leads somewhere."""
    resolver = Registry().resolver_with_root(DRAFT202012.create_resource(document))
    for reference in _references(document):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            raise BadSchema(f"$ref {reference[:SHOWN_CHARS]!r} leads nowhere") from None


def _references(value: Any) -> Iterator[str]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict):
        yield from (value[key] for key in ("$ref", "$dynamicRef") if isinstance(value.get(key), str))
    for each in inner:
        yield from _references(each)


def _matcher(pattern: str) -> SchemaValidator:
    try:
        return SchemaValidator(str_schema(pattern=pattern, regex_engine="rust-regex"))
    except PatternError:
        raise BadSchema(f"pattern {pattern[:SHOWN_CHARS]!r} cannot be used: no look-around, no references") from None


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _matcher(pattern).isinstance_python(instance):
        yield ValidationError("does not match")


def _unique(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # The library compares each with each where they cannot be sorted.
    if wanted and isinstance(instance, list) and len({_told_apart(item) for item in instance}) < len(instance):
        yield ValidationError("not unique")


def _told_apart(item: Any) -> str:
    return json.dumps(_numbers_alike(item), sort_keys=True)


def _numbers_alike(value: Any) -> Any:
    # 1 and 1.0 are one number to JSON Schema.
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_numbers_alike(inner) for inner in value]
        case dict():
            return {key: _numbers_alike(inner) for key, inner in value.items()}
    return value


def _counted(keyword: Callable[..., Any]) -> Callable[..., Any]:
    def step(validator: Any, wanted: Any, instance: Any, schema: Any) -> Any:
        left = _left.get()
        left[0] -= 1
        if left[0] < 0:
            raise _TooMuchWork
        return keyword(validator, wanted, instance, schema)

    return step


_KEYWORDS = {**Draft202012Validator.VALIDATORS, "pattern": _pattern, "uniqueItems": _unique}
_Bounded: Any = extend(Draft202012Validator, {name: _counted(keyword) for name, keyword in _KEYWORDS.items()})


def _place(error: ValidationError | SchemaError) -> str:
    path = error.absolute_path
    return "".join(f"[{key}]" if isinstance(key, int) else f".{_printable(str(key))}" for key in path)[:SHOWN_CHARS]


def _printable(key: str) -> str:
    return "".join(character if character.isprintable() else "\ufffd" for character in key[:KEY_CHARS])


def _why(error: ValidationError) -> str:
    """What is wanted, from the schema alone: the library's own message repeats the value."""
    wanted: Any = error.validator_value
    match error.validator:
        case None:
            return "must not be there"
        case "required" if isinstance(error.instance, dict) and isinstance(wanted, list):
            return f"must have {', '.join(name for name in wanted if name not in error.instance)}"[:SHOWN_CHARS]
        case "additionalProperties" | "unevaluatedProperties":
            return "must not have further properties"
        case "type":
            names = [wanted] if isinstance(wanted, str) else map(str, wanted or [])
            return f"must be {' or '.join(TYPES.get(name, name) for name in names)}"
    return _in_words(str(error.validator), wanted)[:SHOWN_CHARS]


def _in_words(keyword: str, wanted: Any) -> str:
    """What a keyword wants; of those that people meet in forms as a sentence."""
    if keyword == "enum" and isinstance(wanted, list):
        return f"must be one of {', '.join(json.dumps(value, ensure_ascii=False) for value in wanted)}"
    if keyword in WORDS:
        return WORDS[keyword].format(wanted if isinstance(wanted, str) else json.dumps(wanted, ensure_ascii=False))
    return f"must fit {keyword} {json.dumps(wanted, ensure_ascii=False)}"
