"""What masks a text, and remembers of large ones what came of them: a megabyte takes seconds.

What a transaction is to store at the level `redacted` is masked by it, and nowhere else is that decided. But what takes
long is done beforehand (`beforehand.py`), while others write; then it is found here. No text is kept here unmasked.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from background.large import LARGE

REMEMBERED = 32  # texts


class Masks:
    """A redactor that is given the same large text several times, and its own output. It may be called in any thread."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._texts: OrderedDict[bytes, str] = OrderedDict()  # by what was given: what came of it
        self._trees: dict[int, tuple[Any, Any]] = {}  # by identity: one, and it masked
        self._lock = threading.Lock()

    def __call__(self, text: str) -> str:
        if len(text) <= LARGE:
            return self._redact(text)
        given = _digest(text)
        known = self._texts.get(given)
        return self._remember(given, self._redact(text)) if known is None else known

    def _remember(self, given: bytes, masked: str) -> str:
        with self._lock:
            self._texts |= {given: masked, _digest(masked): masked}
            while len(self._texts) > REMEMBERED:
                self._texts.popitem(last=False)
        return masked

    def of_tree(self, tree: Any) -> Any:
        """What came of this very tree where it was masked beforehand, else None."""
        found = self._trees.get(id(tree))
        return None if found is None else found[1]

    @contextmanager
    def holding(self, trees: Iterable[tuple[Any, Any]]) -> Iterator[None]:
        """Within the block it is known what comes of these: (tree, the tree masked)."""
        held = {id(tree): (tree, masked) for tree, masked in trees}
        self._trees |= held
        try:
            yield
        finally:
            for key in held:
                self._trees.pop(key, None)


def _digest(text: str) -> bytes:
    return sha256(text.encode(errors="surrogatepass")).digest()
