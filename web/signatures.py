"""Signatures of webhook bodies, for those who send them and for those who receive them. Pure; it keeps no key.

The header `X-Outrider-Signature` is `t=<unix seconds>,v1=<hex>`, the hex being HMAC-SHA256 over `<t>.<body>`. Several
`v1` may stand in it. Receivers written in Python may copy this file: it needs the standard library alone.
"""

import hashlib
import hmac
from collections.abc import Iterable

HEADER = "X-Outrider-Signature"
TOLERANCE_S = 300.0


def sign(key: str, body: bytes, at: int) -> str:
    """The header's value for a body sent `at` a time in unix seconds."""
    return f"t={at},v1={_digest(key, body, at)}"


def verify(header: str, body: bytes, keys: Iterable[str], now: float, tolerance_s: float = TOLERANCE_S) -> bool:
    """Whether one of `keys` has signed this body within `tolerance_s` seconds of `now` (unix seconds).

    `body` are the bytes as they came, before anything parses them. While keys are being changed a receiver gives the
    old one and the new one; the sender signs with the first of its own.
    """
    fields = [field.partition("=") for field in header.split(",")]
    times = [value for name, _, value in fields if name == "t"]
    if len(times) != 1 or not (times[0].isascii() and times[0].isdigit() and len(times[0]) <= 12):
        return False
    at = int(times[0])
    given = [value for name, _, value in fields if name == "v1"]
    matches = [hmac.compare_digest(_digest(key, body, at), each) for key in keys for each in given if each.isascii()]
    return abs(now - at) <= tolerance_s and any(matches)


def _digest(key: str, body: bytes, at: int) -> str:
    return hmac.new(key.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
