"""Trust tiers: how far what stands in a row may be relied on, by who wrote it.

Owns the numbers, their labels, and which source type has which. It decides nothing about use: a floor is an
argument of search, and text of any tier is material, never instructions.
"""

OPERATOR = 3
AGENT = 2
EXTERNAL = 1

LABELS = {OPERATOR: "the operator's own", AGENT: "an agent's work", EXTERNAL: "external, unchecked"}

_TIERS = {"document": OPERATOR, "background_report": AGENT, "web_page": EXTERNAL}


def tier_of(source_type: str) -> int:
    """The tier of a source type; an unknown one is external."""
    return _TIERS.get(source_type, EXTERNAL)


def known(tier: int) -> int:
    """The tier itself, or external for a number that is none: what cannot be read is not trusted."""
    return tier if tier in LABELS else EXTERNAL


def label(tier: int) -> str:
    """The tier in words, for people and models."""
    return LABELS[known(tier)]
