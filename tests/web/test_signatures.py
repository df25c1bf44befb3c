"""A receiver tells a call of ours from anybody else's, now and while keys are changed."""

import pytest

from web.signatures import sign, verify

BODY = b'{"statusUpdate":{}}'
NOW = 1_800_000_000


def test_a_body_that_was_signed_is_known_within_the_tolerance() -> None:
    """F086."""
    header = sign("first key", BODY, NOW)
    for later in (0, 299, -299):
        assert verify(header, BODY, ["first key"], NOW + later)
    assert not verify(header, BODY, ["first key"], NOW + 301)
    assert not verify(header, BODY, ["first key"], NOW - 301)


def test_the_header_is_what_the_documentation_says() -> None:
    """F086: `t=<unix>,v1=<hex hmac-sha256>` over `t.body`, made here by `openssl dgst -hmac`."""
    by_openssl = "6e005234e2e9b8d2d4963e861925cbc22f29be0a65e4d9ba7cd6b8af0115dae2"
    assert sign("k", b"body", 1) == f"t=1,v1={by_openssl}"


@pytest.mark.parametrize(
    "header",
    [
        sign("first key", BODY + b" ", NOW),
        sign("first key", BODY, NOW - 1).replace(f"t={NOW - 1}", f"t={NOW}"),
        sign("another key", BODY, NOW),
        sign("first key", BODY, NOW).replace("v1=", "v0="),
        sign("first key", BODY, NOW).split(",")[1],
        f"t={NOW}",
        f"t={NOW},v1=",
        f"t={NOW},t={NOW - 1},{sign('first key', BODY, NOW).split(',')[1]}",
        "t=now,v1=00",
        "t=٣,v1=00",
        "t=1,v1=ü",
        "t=-1,v1=00",
        "",
    ],
)
def test_whatever_else_is_not(header: str) -> None:
    """F086: an altered body, a moved time, another's key, and what is no signature."""
    assert not verify(header, BODY, ["first key"], NOW)


def test_a_change_of_keys_loses_no_call() -> None:
    """F086: the receiver takes both while the sender goes from one to the other."""
    assert verify(sign("old", BODY, NOW), BODY, ["new", "old"], NOW)
    assert verify(sign("new", BODY, NOW), BODY, ["new", "old"], NOW)
    assert not verify(sign("old", BODY, NOW), BODY, ["new"], NOW)


def test_a_receiver_may_be_sent_several_signatures() -> None:
    both = f"{sign('old', BODY, NOW)},{sign('new', BODY, NOW).split(',')[1]}"
    assert verify(both, BODY, ["new"], NOW) and verify(both, BODY, ["old"], NOW)
