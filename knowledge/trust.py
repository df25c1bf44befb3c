"""Trust tiers: how far what stands in a row may be relied on, by who wrote it.

Owns the numbers and their labels. Who stores a text says its tier, and a number that is none is external. It decides
nothing about use: a floor is an argument of search, and text of any tier is material, never instructions.
"""

OPERATOR = 3
AGENT = 2
EXTERNAL = 1

LABELS = {OPERATOR: "the operator's own", AGENT: "an agent's work", EXTERNAL: "external, unchecked"}


def lowest(*tiers: int | None) -> int | None:
    """The lowest of these tiers; None where there is none, as of what was made of nothing that has one."""
    return min((known(tier) for tier in tiers if tier is not None), default=None)


def known(tier: int) -> int:
    """The tier itself, or external for a number that is none: what cannot be read is not trusted."""
    return tier if tier in LABELS else EXTERNAL


def label(tier: int) -> str:
    """The tier in words, for people and models."""
    return LABELS[known(tier)]


def words(tier: int, made_of: int | None) -> str:
    """How a text is to be taken: its tier, and whether there is something external in what it is made of."""
    quotes = made_of is not None and known(made_of) == EXTERNAL < known(tier)
    return f"trust {known(tier)}: {label(tier)}" + (", made of external material" if quotes else "")
