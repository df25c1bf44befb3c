"""The time that a test hands to what it tests, in place of the machine's. It moves only when told to."""

START = 1_800_000_000_000_000  # 2027-01-15T08:00:00Z


class Clock:
    """Microseconds since 1970, UTC: `Database(path, now=clock)`."""

    def __init__(self, start: int = START) -> None:
        self._now = start

    def __call__(self) -> int:
        return self._now

    def advance(self, seconds: float) -> int:
        """Moves on, and returns the new time. Going back is allowed: clocks do."""
        self._now += round(seconds * 1_000_000)
        return self._now
