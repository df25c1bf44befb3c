"""Times as they go out: the rows hold microseconds, UTC."""

from datetime import UTC, datetime


def rfc3339(at: int) -> str:
    """`2026-11-30T12:00:00.123Z`, milliseconds always. A2A 1.0 section 5.6.1 asks for this form."""
    return datetime.fromtimestamp(at // 1000 / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rfc3339_or_none(at: int | None) -> str | None:
    return None if at is None else rfc3339(at)
