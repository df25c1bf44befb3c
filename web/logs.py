"""The log: standard error, one line an event. What a text or a traceback has of line breaks and controls is shown."""

import logging
import re
import sys

FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class OneLine(logging.Formatter):
    """Nobody can write a line of the log but the log: a break that came from outside would forge one."""

    def format(self, record: logging.LogRecord) -> str:
        return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], super().format(record))


def set_up() -> None:
    """For the process that serves or works; a line for each post and each model call would say nothing."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(FORM))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    for client in ("httpx", "httpx2"):
        logging.getLogger(client).setLevel(logging.WARNING)
