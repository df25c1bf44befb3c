"""What a message says of where it comes from, laid against who sends it. A claim that is not the caller's to make is
refused, with a line in the audit; what is refused is not repeated.
"""

import logging
import re
from collections.abc import Mapping
from urllib.parse import unquote

from background.acceptance import INITIATED_BY
from web.a2a_errors import A2AError, invalid
from web.caller import RESERVED_ORIGINS, Caller

audit = logging.getLogger("outrider.audit")

RESERVED_CONTEXT = "background:"
OURS = (INITIATED_BY,)  # what Outrider writes into the metadata of a message that somebody sent
CLAIMS = ("origin", "trigger", *OURS)
SESSION_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def is_session_id(text: str) -> bool:
    """Whether a client may give a session this id."""
    return SESSION_ID.fullmatch(text) is not None


def is_reserved(session: str) -> bool:
    """Whether this id lies in the range that only Outrider itself gives to sessions, however it is spelled."""
    return unquote(session).casefold().startswith(RESERVED_CONTEXT)


def check_claims(caller: Caller, context_id: str | None, *metadata: Mapping[str, object] | None) -> None:
    """Refuses a message that claims to come from where its caller does not: A2AError -32602, and a line in the audit.

    A user claims neither a reserved context nor a reserved `origin`; a post of our own keeps to its one session.
    """
    if caller.origin != "user":
        if context_id != caller.session:
            raise _refused_claim(caller, "message.contextId", "not the context of this credential")
        return
    if context_id is not None and is_reserved(context_id):
        raise _refused_claim(caller, "message.contextId", f"ids that begin with {RESERVED_CONTEXT} are reserved")
    if any(_claims_origin(given) for given in metadata):
        raise _refused_claim(
            caller, "message.metadata.origin", f"{' and '.join(sorted(RESERVED_ORIGINS))} are reserved"
        )
    for name in OURS:
        if any(name in (given or {}) for given in metadata):
            raise _refused_claim(caller, f"message.metadata.{name}", "is written by Outrider alone")


def _claims_origin(metadata: Mapping[str, object] | None) -> bool:
    claimed = (metadata or {}).get("origin")
    return isinstance(claimed, str) and claimed.strip().casefold() in RESERVED_ORIGINS


def _refused_claim(caller: Caller, field: str, description: str) -> A2AError:
    audit.warning("refused a forged claim: owner=%r origin=%s field=%s", caller.owner, caller.origin, field)
    return invalid(field, description)
