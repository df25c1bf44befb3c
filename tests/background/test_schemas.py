"""F019: a profile's schemas say where a value does not fit and never what stood there, and no check runs for ever."""

import contextlib
import json
import time
from typing import Any

import pytest

from background.schemas import DIALECT, BadSchema, Schema, Unfit

CANARY = "canary-8157"


def unfit(schema: Any, value: Any) -> Unfit:
    with pytest.raises(Unfit) as refused:
        Schema(schema).check(value)
    assert CANARY not in str(refused.value)
    return refused.value


@pytest.mark.parametrize("given", [{"type": "object"}, '{"type": "object"}', {"$schema": DIALECT, "type": "object"}])
def test_a_schema_is_an_object_or_json_text(given: Any) -> None:
    Schema(given).check({"any": "thing"})
    assert unfit(given, [CANARY]).why == "must be an object"


@pytest.mark.parametrize(
    ("schema", "value", "place", "why"),
    [
        (
            {"properties": {"a": {"items": {"type": "integer"}}}},
            {"a": [1, 2, CANARY]},
            ".a[2]",
            "must be a whole number",
        ),
        ({"required": ["a", "b"]}, {"a": CANARY}, "", "must have b"),
        ({"additionalProperties": False}, {"x": CANARY}, "", "must not have further properties"),
        ({"enum": ["yes", "no"]}, CANARY, "", 'must be one of "yes", "no"'),
        ({"minimum": 1}, 0, "", "must be at least 1"),
        ({"const": True}, CANARY, "", "must be true"),
        ({"maxLength": 3}, CANARY, "", "must have at most 3 characters"),
        ({"type": ["string", "null"]}, {"x": CANARY}, "", "must be text or null"),
        ({"pattern": "^[a-z]+$"}, CANARY, "", "must fit the pattern ^[a-z]+$"),
        ({"not": {"type": "string"}}, CANARY, "", 'must fit not {"type": "string"}'),
        (
            {"properties": {"n": {"$ref": "#"}, "x": {"type": "null"}}},
            {"n": {"n": {"x": CANARY}}},
            ".n.n.x",
            "must be null",
        ),
        (False, CANARY, "", "must not be there"),
        ({"uniqueItems": True}, [{"a": CANARY}, 1, {"a": CANARY}], "", "must not have the same entry twice"),
        ({"multipleOf": 0.1}, 10**400, "", "has a number that cannot be checked"),
    ],
)
def test_the_first_place_that_does_not_fit_is_named_and_what_the_schema_wants(
    schema: Any, value: Any, place: str, why: str
) -> None:
    found = unfit(schema, value)
    assert (found.place, found.why) == (place, why)


def test_numbers_are_one_where_json_schema_says_so() -> None:
    assert unfit({"uniqueItems": True}, [1, 1.0])
    Schema({"uniqueItems": True}).check([1, True, "1"])


def test_a_text_is_the_value_that_it_spells_or_else_itself() -> None:
    schema = Schema({"type": "object", "required": ["a"]})
    schema.check_text('{"a": 1}')
    for text in ("{}", "hello", "[" * 100_000):
        with pytest.raises(Unfit):
            schema.check_text(text)
    Schema({"type": "string"}).check_text("123")
    Schema({"type": "integer"}).check_text("123")


def without_end(depth: int = 40) -> dict[str, Any]:
    """Each step asks twice for the next: as many checks as two to the depth."""
    steps = {f"s{number}": {"allOf": [{"$ref": f"#/$defs/s{number + 1}"}] * 2} for number in range(depth)}
    return {"$defs": {**steps, f"s{depth}": {}}, "$ref": "#/$defs/s0"}


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("{", "is not JSON"),
        (float("nan"), "is not JSON"),
        ([], "must be an object"),
        ({"type": "objekt"}, "at .type: does not fit the rules of JSON Schema"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "$schema must be"),
        ({"items": {"$schema": DIALECT}}, "$schema may stand at the top only"),
        ({"$ref": "https://example.org/schema"}, "must stay within the schema"),
        ({"items": {"$ref": "file:///etc/passwd"}}, "must stay within the schema"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "leads nowhere"),
        ({"$ref": "#"}, "takes too long to check"),
        ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, "takes too long to check"),
        (without_end(), "takes too long to check"),
        ({"pattern": "(?=a)b"}, "no look-around"),
        ({"patternProperties": {"a": {}}}, "patternProperties cannot be used here"),
        ({"description": "x" * 70_000}, "must not be longer"),
        (json.loads('{"not":' * 40 + "{}" + "}" * 40), "must not be nested deeper"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_before_anything_is_checked(schema: Any, told: str) -> None:
    with pytest.raises(BadSchema) as refused:
        Schema(schema)
    assert told in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 100_000 + "b"),
        ({"items": {"type": "integer"}}, list(range(500_000))),
        ({"items": {"anyOf": [{"const": number} for number in range(500)]}}, [-1] * 5000),
        ({"uniqueItems": True, "maxItems": 0}, [{"a": number} for number in range(50_000)]),
        (
            {"$defs": {"a": {"items": {"anyOf": [{"$ref": "#/$defs/a"}] * 3}}}, "$ref": "#/$defs/a"},
            json.loads("[" * 32 + "1" + "]" * 32),
        ),
    ],
    ids=["pattern", "many items", "many branches", "unique", "branches in branches"],
)
def test_a_check_comes_to_its_end_whatever_is_sent(schema: Any, value: Any) -> None:
    began = time.monotonic()
    with contextlib.suppress(Unfit):
        Schema(schema).check(value)
    assert time.monotonic() - began < 10  # far more than it takes, and far less than without a bound
