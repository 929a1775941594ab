"""The invariants, continuously."""
