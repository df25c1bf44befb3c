"""Which turns are given memory by themselves: those of the user's own chats that may recall sessions, and workers whose type asks.

It reads, on a reader's own thread, and writes nothing.
"""

from agent.memory import Given, given
from agent.memory_tool import NAME
from agent.subagents import SubagentType
from agent.taking_up import Turn
from background import memories, shares
from background.database import Database, Tx
from background.memories import Memory


async def given_to(db: Database, turn: Turn, tools: tuple[str, ...], kind: SubagentType | None) -> Given | None:
    """What this turn is given; `kind` is of a job's. None for an incognito one, and where others may speak too."""
    asks = kind.memory if kind else NAME in tools
    if not asks or turn.task.incognito:
        return None
    apart = [turn.session.uid, *([turn.job.session] if turn.job else [])]
    return given(await db.read(_before_turn, turn.task.owner, apart))


def _before_turn(tx: Tx, owner: str, apart: list[str]) -> list[Memory]:
    if any(shares.open_to_others(tx, uid) for uid in apart):
        return []  # what a guest asks for is answered out of this session alone
    return memories.before_turn(tx, owner, apart)
