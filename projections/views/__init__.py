"""Rows, which are folds of events, and views, whose encoding is the JSON."""
