"""A gist goes with what it was made of: turns that it covers, the turn that made it, and what keeps less of either."""

import pytest

from background import earlier, gists, retention, sessions, terminal
from background.database import Database
from background.gists import Gist
from tests.background.factories import Turn, running, settled
from tests.background.story import story

SAID = "Ada writes from ada@example.com"


async def over(db: Database, said: str) -> Turn:
    """A turn that has ended."""
    turn = await running(db, said)
    await settled(db, turn)
    return turn


async def with_gist(db: Database, level: str = "full") -> tuple[Turn, Turn]:
    """A session of two ended turns, the first of which a gist covers that the third, at work, has made: the first, the third."""
    first = await over(db, "one")
    await over(db, "two")
    third = await running(db, "three")
    (past, _) = await db.read(earlier.turns, third.task.session, third.task.id, 10)
    made = Gist(past.id, past.ended_at, ("bg-0123456789ab",), SAID)
    await db.write(gists.put, third.task.session, third.task.id, made, level)
    assert past.id == first.task.id
    return first, third


async def kept(db: Database, turn: Turn) -> Gist | None:
    return await db.read(gists.of, turn.task.session)


@story
async def test_what_it_covers_is_not_told_again(db: Database) -> None:
    _, third = await with_gist(db)
    found = await kept(db, third)
    assert found is not None and found.text == SAID and found.told == ("bg-0123456789ab",)
    after = (found.upto_at, found.upto)
    (left,) = await db.read(earlier.turns, third.task.session, third.task.id, 10, after)
    assert left.id not in (found.upto, third.task.id)


@story
async def test_it_is_kept_at_the_level_of_the_turn_that_made_it(db: Database) -> None:
    _, third = await with_gist(db, "redacted")
    found = await kept(db, third)
    assert found is not None and "ada@" not in found.text and found.text.startswith("Ada writes")


@pytest.mark.parametrize(("which", "goes"), [(0, True), (1, True), (2, False)])
@story
async def test_it_goes_with_a_turn_that_keeps_less(db: Database, which: int, goes: bool) -> None:
    """A turn that it covers, the one that made it; and not with one that came after it."""
    first, third = await with_gist(db)
    await settled(db, third)
    later = await over(db, "four")
    lowered = (first, third, later)[which]
    await db.write(terminal.tighten, lowered.task.id, "redacted")
    assert (await kept(db, third) is None) is goes


@pytest.mark.parametrize("erased", ["turn", "session"])
@story
async def test_it_goes_with_what_is_erased(db: Database, erased: str) -> None:
    first, third = await with_gist(db)
    if erased == "turn":
        await db.write(retention.erase_task, first.task)
    else:
        await db.write(retention.erase_session, await db.read(sessions.by_uid, third.task.session))
    assert await kept(db, third) is None
