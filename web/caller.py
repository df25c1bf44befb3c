"""Who asks: a value that every binding hands to what it serves. It is found by `web/callers.py`, and nowhere made up."""

from typing import Literal, NamedTuple, get_args

from background.shares import Share

LOCAL = "local"  # whoever is on this machine, while no token exists

Origin = Literal["user", "background", "background-resume"]
RESERVED_ORIGINS = frozenset(get_args(Origin)) - {"user"}


class Caller(NamedTuple):
    """Whose request this is, and for whom it acts.

    `origin` is `user`, or for our own posts `background` (a job's dispatch) or `background-resume` (a nudge); those
    are bound to the one `session` they post into and carry the job's or batch's id as `trigger`. `token` is the id of
    the access token that a user has shown, or logged in with; then `until` is when the login is over (microseconds).
    `share` is what a user shows beside: `web/acting.py` says as whom he acts with it.
    """

    owner: str
    origin: Origin = "user"
    session: str | None = None
    trigger: str | None = None
    token: str | None = None
    until: int | None = None
    share: Share | None = None

    @property
    def sender(self) -> str | None:
        """Who sends, where it is into a session that is another's."""
        return self.owner if self.share is not None and self.share.owner != self.owner else None
