"""Figures of Outrider beside a peer's, taken on one machine by one driver: `make bench`. Not part of the product."""
