"""A message that is accepted, and one that is refused with nothing stored."""

import pytest

from background import acceptance
from background.acceptance import Accepted, Incoming
from background.database import Database
from background.errors import Fault
from tests.background.story import everything


async def accept(db: Database, sent: Incoming) -> Accepted:
    return await db.write(acceptance.accept, sent)


async def refused(db: Database, sent: Incoming) -> Fault:
    """The fault with which a message is refused; nothing of it is stored."""
    before = everything(db.path)
    with pytest.raises(Fault) as caught:
        await db.write(acceptance.accept, sent)
    assert everything(db.path) == before
    return caught.value
