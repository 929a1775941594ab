"""Rows, which are folded from events, and the views that the HTTP API encodes as JSON."""
