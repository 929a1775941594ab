"""Recorded requests decided again: as they were, or under other rules."""
