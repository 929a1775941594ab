"""Dropping archived events from a log, and new logs that begin with an archive."""
