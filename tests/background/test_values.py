"""A body becomes a value with every bound kept, whichever of the two parsers read it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from background.values import LongNumber, NotJson, TooDeep, canonical, decode, path_deeper_than

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab[]{}\"\\'é"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("k[]{}", max_size=2), inner, max_size=4),
    max_leaves=60,
)


def depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


@settings(max_examples=300, deadline=None)
@given(JSON, st.integers(0, 8))
def test_a_value_comes_through_whole_or_is_too_deep(value: object, nesting: int) -> None:
    body = json.dumps(value).encode()
    if depth(value) <= nesting:
        assert decode(body, nesting) == value
        assert path_deeper_than(nesting, value) is None
    else:
        with pytest.raises(TooDeep) as deep:
            decode(body, nesting)
        inner = deep.value.value
        for key in deep.value.path:
            inner = inner[key]
        assert isinstance(inner, dict | list) and len(deep.value.path) == nesting


@pytest.mark.parametrize("levels", [37, 38, 200, 201, 900, 5_000, 500_000])
@pytest.mark.parametrize(
    ("opened", "inside", "closed"), [(b"[", b"", b"]"), (b"[", b"1", b"]"), (b'{"a":', b"1", b"}")]
)
def test_A85_the_bound_is_exact_at_any_depth(levels: int, opened: bytes, inside: bytes, closed: bytes) -> None:
    body = opened * levels + inside + closed * levels
    if levels == 37:
        assert depth(decode(body, 37)) == 37
    else:
        with pytest.raises(TooDeep):
            decode(body, 37)


MANY = b"[" + b"[]," * 60 + b"1]"  # enough brackets to be read inside more of them
NOT_JSON = [b"", b" ", b"{bad", b"\xff\xfe", b"\xef\xbb\xbf{}", b"01", b"1 2", b'"\x01"', b"'a'", b"[1,]", b"]", b"],["]


@pytest.mark.parametrize("body", [*NOT_JSON, *(MANY + body for body in NOT_JSON[2:])])
def test_what_is_not_json_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(NotJson):
        decode(body, 37)


@pytest.mark.parametrize("steps", [1, 2, 100, 164, 165, 166, 300])
@pytest.mark.parametrize("between", [b",", b",1,"])
def test_a_body_cannot_step_out_of_the_brackets_that_are_set_around_it(steps: int, between: bytes) -> None:
    for body in (MANY + b"]" * steps + between + b"[" * steps + MANY, MANY + between + MANY, MANY + b"]" * steps):
        with pytest.raises(NotJson):
            decode(body, 37)


def test_A86_numbers_stay_as_they_were_sent() -> None:
    body = b'{"i":1,"big":9007199254740993,"huge":123456789012345678901234567890,"f":1.5,"n":null}'
    value = decode(body, 5)
    assert value == {"i": 1, "big": 9007199254740993, "huge": 123456789012345678901234567890, "f": 1.5, "n": None}
    assert [type(value[key]) for key in ("i", "big", "huge", "f")] == [int, int, int, float]


def test_a_number_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(LongNumber):
        decode(b"9" * 5000, 1)


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e400"])
def test_A86_what_is_no_number_of_json_never_goes_out(number: bytes) -> None:
    with pytest.raises(ValueError):
        canonical(decode(b"[" + number + b"]", 1))


@pytest.mark.parametrize(
    ("sent", "clean"),
    [
        (rb'"a\u0000b"', "a\ufffdb"),
        (rb'"\ud800"', "\ufffd"),
        (rb'"\udc00\ud800"', "\ufffd\ufffd"),
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"\\u0000"', r"\u0000"),
        (rb'{"\u0000":["\ud800",{"k":"\u0000"}]}', {"\ufffd": ["\ufffd", {"k": "\ufffd"}]}),
    ],
)
def test_text_is_made_clean_where_it_enters(sent: bytes, clean: object) -> None:
    assert decode(sent, 5) == clean


def test_the_canonical_text_does_not_depend_on_the_order() -> None:
    assert canonical({"b": [{"y": 1, "x": 2}], "a": "é"}) == canonical({"a": "é", "b": [{"x": 2, "y": 1}]})
    assert canonical([1, 2]) != canonical([2, 1])
