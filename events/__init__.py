"""Remembering: the catalog of events, their canonical bytes, and the logs that keep them."""
