"""The schemas of `background/schemas.py`, by the name that they had here."""

from background.schemas import BadSchema, Schema, Unfit

__all__ = ["BadSchema", "Schema", "Unfit"]
