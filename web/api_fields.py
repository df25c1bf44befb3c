"""The fields of a message as `/api` calls them: what is refused in the rooms below is named there as A2A calls it.

Pure: it knows names, and decides nothing.
"""

import re
from contextlib import contextmanager

from background.errors import Fault

_METADATA = "message.metadata."
_PART = re.compile(r"message\.parts(?:\[\d+\])?\.(text|data)")
_OTHER = {"message.parts": "text", "message.messageId": "message_id", "message.taskId": "task_id"}


@contextmanager
def as_called():
    """Faults of a message that came over `/api` name the field that its sender wrote."""
    try:
        yield
    except Fault as fault:
        if field := fault.details.get("field"):
            fault.details["field"] = of_body(field)
        raise


def of_body(field: str) -> str:
    """The field of the body that stands for this one of A2A's."""
    return _OTHER.get(field) or _PART.sub(r"\1", field.removeprefix(_METADATA), count=1)
