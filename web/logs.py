"""The log: standard error, one line an event. What a text or a traceback has of line breaks and controls is shown."""

import logging
import re
import sys

from background.about import ids
from background.redaction import redact

FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class OneLine(logging.Formatter):
    """Nobody can write a line of the log but the log: a break that came from outside would forge one.

    `masked`: where answers are not kept whole, no line quotes more than is kept of them.
    """

    def __init__(self, form: str, *, masked: bool = False) -> None:
        super().__init__(form)
        self._masked = masked

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        unsaid = [one for one in ids() if one not in line]
        line += f" [{' '.join(unsaid)}]" if unsaid else ""
        return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], redact(line) if self._masked else line)


def set_up(*, masked: bool = False) -> None:
    """For the process that serves or works; a line for each post and each model call would say nothing."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(FORM, masked=masked))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    for client in ("httpx", "httpx2"):
        logging.getLogger(client).setLevel(logging.WARNING)
