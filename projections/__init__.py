"""Seeing: the topic state kept beside the log, and rows for those who ask what is, what was and why."""
