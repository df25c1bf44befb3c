"""The answer levels: the strictest holds, and one function says what each keeps of a text and of a tree of JSON."""

import base64
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from background.ceilings import LEVELS, can_keep, keep, keep_json, strictest
from background.redaction import redact

TEXT = "Write to ada@example.com with password=hunter2, please."
MASKED = "Write to *** with password=***, please."

# The table, written out: for each level of the installation, the profile (down) against the provider (across).
TABLE = {
    "full": [
        ["full", "redacted", "metadata", "none"],
        ["redacted", "redacted", "metadata", "none"],
        ["metadata", "metadata", "metadata", "none"],
        ["none", "none", "none", "none"],
    ],
    "redacted": [
        ["redacted", "redacted", "metadata", "none"],
        ["redacted", "redacted", "metadata", "none"],
        ["metadata", "metadata", "metadata", "none"],
        ["none", "none", "none", "none"],
    ],
    "metadata": [
        ["metadata", "metadata", "metadata", "none"],
        ["metadata", "metadata", "metadata", "none"],
        ["metadata", "metadata", "metadata", "none"],
        ["none", "none", "none", "none"],
    ],
    "none": [["none"] * 4] * 4,
}


@pytest.mark.parametrize(("installation", "profile", "provider"), list(itertools.product(LEVELS, repeat=3)))
def test_f042_the_strictest_of_installation_profile_and_provider_holds(
    installation: str, profile: str, provider: str
) -> None:
    expected = TABLE[installation][LEVELS.index(profile)][LEVELS.index(provider)]
    assert strictest(installation, profile, provider) == expected


@pytest.mark.parametrize(("level", "later"), list(itertools.product(LEVELS, repeat=2)))
def test_f042_no_later_attempt_raises_a_level(level: str, later: str) -> None:
    assert LEVELS.index(strictest(level, later)) >= LEVELS.index(level)


def test_with_nobody_who_says_anything_all_is_kept() -> None:
    assert strictest() == "full"


def test_a_word_that_is_no_level_is_refused() -> None:
    with pytest.raises(ValueError, match="everything"):
        strictest("full", "everything")


@pytest.mark.parametrize(("level", "kept"), [("full", TEXT), ("redacted", MASKED), ("metadata", ""), ("none", "")])
def test_f051_what_each_level_keeps_of_a_text(level: str, kept: str) -> None:
    assert keep(level, TEXT, redact) == kept
    assert can_keep(level) == bool(kept)


def test_f043_a_long_text_is_masked_and_otherwise_whole() -> None:
    before, after = "An ordinary sentence. " * 350, " And then some more." * 350
    kept = keep("redacted", f"{before}{TEXT}{after}", redact)
    assert kept == f"{before}{MASKED}{after}"
    assert len(kept) > 14_000


def test_f043_the_redactor_can_be_another() -> None:
    assert keep("redacted", "a secret place", lambda text: text.replace("secret", "[hidden]")) == "a [hidden] place"


TREE: dict[str, Any] = {
    "parts": [{"text": TEXT}, {"data": {"password": "hunter2", "n": 4, "deep": [None, True, 1.5, "+49 30 12345678"]}}],
    "artifactId": "t-1",
}


@pytest.mark.parametrize("level", ["metadata", "none"])
def test_of_a_tree_the_low_levels_keep_nothing(level: str) -> None:
    assert keep_json(level, TREE, redact) is None


def test_at_full_a_tree_stays_as_it_is() -> None:
    assert keep_json("full", TREE, redact) == TREE


def test_at_redacted_every_string_of_a_tree_is_masked_and_its_form_stays() -> None:
    assert keep_json("redacted", TREE, redact) == {
        "parts": [{"text": MASKED}, {"data": {"password": "***", "n": 4, "deep": [None, True, 1.5, "***"]}}],
        "artifactId": "t-1",
    }


def test_a_card_number_without_quotes_is_masked_too_and_other_numbers_stay_numbers() -> None:
    assert keep_json("redacted", {"card": 4111111111111111, "at": 1732972800000000}, redact) == {
        "card": "***",
        "at": 1732972800000000,
    }


def test_json_within_a_string_can_be_read_afterwards() -> None:
    arguments = '{"to": "ada@example.com", "card": 4111111111111111, "api_key": "abc", "n": [1, 2]}'
    kept = keep_json("redacted", {"args": arguments}, redact)
    assert json.loads(kept["args"]) == {"to": "***", "card": "***", "api_key": "***", "n": [1, 2]}


@pytest.mark.parametrize(
    "text", ['{"n":1,\n  "text": "nothing to hide"}', "[1, 2", "{" * 100_000, "[" * 100_000], ids=str.__len__
)
def test_json_with_nothing_to_mask_and_what_only_looks_like_it_stay_to_the_letter(text: str) -> None:
    assert keep_json("redacted", text, redact) == text


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode], ids=["usual", "for addresses"])
def test_a_file_that_is_text_is_masked_and_one_of_bytes_stays_as_it_is(encode: Callable[[bytes], bytes]) -> None:
    bytes_of_an_image = encode(bytes(range(256)) * 3).decode()
    parts = [
        {"raw": encode(TEXT.encode()).decode().rstrip("=")},
        {"raw": bytes_of_an_image},
        {"raw": "no base64, ada@example.com"},
    ]
    text, image, other = keep_json("redacted", parts, redact)
    assert base64.b64decode(text["raw"]).decode() == MASKED
    assert (image["raw"], other["raw"]) == (bytes_of_an_image, "no base64, ***")


@pytest.mark.parametrize("depth", [30, 300, 900, 990])
def test_json_that_is_nested_deeply_is_masked_all_the_same(depth: int) -> None:
    text = "[" * depth + '"ada@example.com"' + "]" * depth
    assert keep_json("redacted", text, redact) == text.replace("ada@example.com", "***")


def test_an_address_as_a_key_is_masked_and_its_value_is_not_lost() -> None:
    assert keep_json("redacted", {"ada@example.com": 1, "bob@example.com": 2, "text": "x"}, redact) == {
        "***": 1,
        "******": 2,
        "text": "x",
    }


def test_another_redactor_does_not_change_what_a_protocol_calls_things() -> None:
    assert keep_json("redacted", {"text": "shout"}, str.upper) == {"text": "SHOUT"}


def test_what_was_given_is_not_changed() -> None:
    before = json.dumps(TREE)
    keep_json("redacted", TREE, redact)
    assert json.dumps(TREE) == before
