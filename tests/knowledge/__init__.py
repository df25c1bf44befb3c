"""The knowledge store, through its public face, on real files."""
