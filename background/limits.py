"""The bounds that transactions keep, as one frozen value that every `tx` carries. Times are microseconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

SECOND = 1_000_000
MINUTE = 60 * SECOND


@dataclass(frozen=True)
class Limits:
    """See the settings of the same names; `web/settings.py` makes one of these."""

    lease: int = 30 * SECOND
    worker_ttl: int = 120 * SECOND
    resume_max_age: int = 86400 * SECOND
    max_attempts: int = 3
    max_open_tasks: int = 256
    max_queued_jobs: int = 512
    max_queued_of_plugins: Mapping[str, int] = field(default_factory=dict, hash=False)
    max_depth: int = 1
    batch_join_timeout: int = 900 * SECOND
