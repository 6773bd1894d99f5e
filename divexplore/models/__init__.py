"""Load a model the one canonical way, and tell whether two are the same."""
