"""How long what stands for a token lasts, by a clock that a test moves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from background import tokens
from background.database import Database
from tests.support.clock import Clock
from web import logins


def test_a_login_lasts_twelve_hours_and_a_ticket_thirty_seconds(
    run: Callable[..., Any], tmp_path: Path, clock: Clock
) -> None:
    async def story() -> None:
        db = await Database(tmp_path / "registry.db", clock).open()
        try:
            _, text = await db.write(tokens.make, "alice")
            login = await db.read(logins.log_in, text)
            assert login is not None
            caller = await db.read(logins.by_cookie, login.cookie)
            assert caller is not None and caller.owner == "alice"
            ticket = await db.read(logins.ticket, caller)
            clock.advance(29.9)
            assert await db.read(logins.by_ticket, ticket) == caller
            clock.advance(0.1)
            assert await db.read(logins.by_ticket, ticket) is None
            clock.advance(12 * 3600 - 30.1)
            assert await db.read(logins.by_cookie, login.cookie) == caller
            clock.advance(0.1)
            assert await db.read(logins.by_cookie, login.cookie) is None
        finally:
            await db.close()

    run(story())
