"""A mode of the proxy that writes no rules: what a mode's package must have, and no more."""
