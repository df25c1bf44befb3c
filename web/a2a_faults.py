"""Whatever went wrong while an A2A method was served, as an error that its client may be told.

A fault of the rooms below becomes the row of the table that says it; anything else is logged, and its client gets an id.
"""

import logging
import secrets

from background.errors import Fault, StorageUnavailable
from web.a2a_errors import A2AError, internal, invalid

log = logging.getLogger("outrider.a2a")

NAMED = ("WORKER_UNAVAILABLE", "OPEN_TASKS_LIMIT_REACHED", "MESSAGE_ID_REUSED", "TASK_NOT_CANCELABLE")


def as_error(failure: Exception) -> A2AError:
    """The error of the wire for anything that was raised."""
    if isinstance(failure, A2AError):
        return failure
    return _refused(failure) if isinstance(failure, Fault) else _unexpected(failure)


def _refused(fault: Fault) -> A2AError:
    if fault.reason in NAMED:
        return A2AError(fault.reason, fault.message, metadata={"limit": fault.details.get("limit")})
    if fault.reason == "RESULT_NOT_STORABLE":
        return A2AError(fault.reason, fault.message, metadata={"level": fault.details.get("level")})
    match fault.kind:
        case "not_found":
            return A2AError("TASK_NOT_FOUND")
        case "invalid":
            return invalid(fault.details.get("field", "message"), fault.message)
    return A2AError("UNSUPPORTED_OPERATION", fault.message)


def _unexpected(failure: Exception) -> A2AError:
    error_id = secrets.token_hex(6)
    if isinstance(failure, StorageUnavailable):
        log.error("error %s: the storage cannot be used: %s", error_id, failure)
    else:
        log.error("error %s", error_id, exc_info=failure)
    return internal(error_id)
