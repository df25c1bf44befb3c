"""Servers that are killed for good, at every commit and at any moment, and what must hold all the same afterwards."""
