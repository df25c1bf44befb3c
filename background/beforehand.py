"""Masking before a transaction what it will store, so that nobody who wants to write waits for it.

It decides nothing: the transaction asks for the level again, and masks itself what was not masked here.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from background.ceilings import can_keep, keep_json
from background.database import Database, Tx
from background.large import is_large, one_by_one


@asynccontextmanager
async def masked(
    db: Database, level: Callable[[Tx], str | None], *, texts: Iterable[str | None] = (), trees: Iterable[Any] = ()
) -> AsyncIterator[None]:
    """Within the block, transactions find these masked, if they are large and their level asks for it.

    `texts` are those that `ceilings.keep` will be given, `trees` those of `keep_json`.
    """
    large_texts = [text for text in texts if text is not None and is_large(text)]
    large_trees = [tree for tree in trees if is_large(tree)]
    found = await db.read(level) if large_texts or large_trees else None
    if found in (None, "full") or not can_keep(found):
        yield
        return
    for text in large_texts:
        await one_by_one(db.masks, text)
    made = [(tree, await one_by_one(keep_json, found, tree, db.masks)) for tree in large_trees]
    with db.masks.holding(made):
        yield
