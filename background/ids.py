"""Ids of what is new. They grow with time, so that rows of one moment lie side by side in every index that has them.

With ids of pure chance each row dirties a page of its own in each of its indexes, and a commit writes them all. What is
in an id besides the time nobody can guess; an id is no right all the same.
"""

import os
import time
from uuid import UUID


def uuid7() -> UUID:
    """A UUID of version 7: 48 bits of Unix time in milliseconds, then 74 bits of chance. RFC 9562, section 5.7."""
    drawn = int.from_bytes(os.urandom(10))
    high = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 16 | 0x7000 | drawn >> 68
    return UUID(int=high << 64 | 0b10 << 62 | drawn & (1 << 62) - 1)


def uid() -> str:
    """32 hex digits, of the same make."""
    return uuid7().hex
