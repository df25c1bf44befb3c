"""As whom a caller acts on what it names: the one place where a share stands for its owner, and where it does not.

A share stands for the owner in its own session alone, and only where a request names that session, or a task or job of
it. There it reads as the owner would; if it is writable it may also send and answer. With a share in hand nothing else
is changed, not even what is the caller's own, so that what was meant for a shared session never lands elsewhere. What
is refused is answered as what is not there.
"""

from background import batches, job_rows, tasks
from background.database import Tx
from background.errors import not_found
from web.caller import Caller


def alone(caller: Caller, *, changes: bool) -> str:
    """The owner for what belongs to no one session, or that no share opens. Raises `not_found`."""
    if changes and caller.share is not None:
        raise not_found("session")
    return caller.owner


def in_session(caller: Caller, session_id: str | None, *, changes: bool = False) -> str:
    """The owner for what a request asks in the session that it names, if it names one. Raises `not_found`."""
    share = caller.share
    if share is not None and session_id == share.session and (share.writable or not changes):
        return share.owner
    return alone(caller, changes=changes)


def beyond_shares(caller: Caller, session_id: str, *, changes: bool) -> str:
    """The owner for what of a session no share opens. Raises `not_found`, for the shared one too: never another of its name."""
    if caller.share is not None and session_id == caller.share.session:
        raise not_found("session")
    return alone(caller, changes=changes)


def on_task(tx: Tx, caller: Caller, task_id: str, *, changes: bool = False) -> str:
    """The owner for what is asked of a task: in a shared session, of its own turns and not of its jobs' tasks."""
    share = caller.share
    if share is None:
        return caller.owner
    task = tasks.find(tx, share.owner, task_id)
    inside = task is not None and task.session == share.uid
    return in_session(caller, share.session if inside else None, changes=changes)


def on_job(tx: Tx, caller: Caller, job_id: str) -> str:
    """The owner for what is read of a job that was sent out from the session; what is incognito no share opens."""
    share = caller.share
    if share is None:
        return caller.owner
    job = job_rows.find(tx, share.owner, job_id)
    inside = job is not None and job.session == share.uid and not job.incognito
    return in_session(caller, share.session if inside else None)


def on_batch(tx: Tx, caller: Caller, batch_id: str) -> str:
    """The owner for what is read of a batch that was sent out from the session."""
    share = caller.share
    if share is None:
        return caller.owner
    inside = batches.session_of(tx, share.owner, batch_id) == share.uid
    return in_session(caller, share.session if inside else None)


def sender(tx: Tx, caller: Caller, context_id: str | None, task_id: str | None) -> str:
    """The owner in whose session a message is sent: the context that it names, or that of its task. Raises `not_found`."""
    if task_id is not None:
        return on_task(tx, caller, task_id, changes=True)
    return in_session(caller, context_id, changes=True)
