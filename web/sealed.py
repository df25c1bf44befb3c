"""Values that a client keeps for us: sealed for one purpose and written as text, which nobody can make, read or alter."""

import base64
import binascii
import json
from typing import Any

from background.database import Tx
from background.errors import Unsealable


def sealed(tx: Tx, purpose: str, of: str, value: Any) -> str:
    """A value of JSON as a text that opens for this purpose and `of` alone."""
    return _spelled(tx.seal(purpose, of, json.dumps(value)))


def opened(tx: Tx, purpose: str, of: str, text: str) -> Any | None:
    """The value in such a text; None where it is none, or another's. One value has one spelling."""
    try:
        cell = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return json.loads(tx.unseal(purpose, of, cell)) if _spelled(cell) == text else None
    except (binascii.Error, ValueError, Unsealable):
        return None


def _spelled(cell: bytes) -> str:
    return base64.urlsafe_b64encode(cell).decode().rstrip("=")
