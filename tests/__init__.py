"""The promises, kept by running them. Helpers are in `tests.support`."""
