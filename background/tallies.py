"""How often something happened, over all processes and restarts: counted in the commit in which it did. Owns `tallies`.

It is for figures, and decides nothing.
"""

from background.database import Tx


def add(tx: Tx, name: str, label: str = "") -> None:
    """It has happened once more."""
    tx.x(
        "insert into tallies (name, label, count) values (:name, :label, 1) "
        "on conflict (name, label) do update set count = count + 1",
        name=name,
        label=label,
    )


def counted(tx: Tx, name: str) -> dict[str, int]:
    """How often, by label; what never happened is left out."""
    return {row["label"]: row["count"] for row in tx.q("select * from tallies where name = :name", name=name)}
