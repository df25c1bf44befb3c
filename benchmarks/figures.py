"""What a figure is, and how one line of it reads. No measuring here."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    """The same thing measured on something else, by the same driver in the same minutes."""

    name: str
    value: float


@dataclass(frozen=True)
class Figure:
    """One measured value of Outrider's. `more` is better for rates, less for times and sizes."""

    name: str
    value: float
    unit: str
    peers: Sequence[Peer] = ()
    more: bool = False
    note: str = ""

    def __str__(self) -> str:
        beside = "".join(f"   {self._ratio(peer)}" for peer in self.peers)
        note = f"   ({self.note})" if self.note else ""
        return f"{self.name:<46} {_short(self.value):>9} {self.unit}{beside}{note}"

    def _ratio(self, peer: Peer) -> str:
        """How many times better than the peer; below 1 it is worse."""
        ratio = self.value / peer.value if self.more else peer.value / self.value
        return f"{ratio:.2f}x {peer.name} ({_short(peer.value)} {self.unit})"


def _short(value: float) -> str:
    """Three digits that mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
