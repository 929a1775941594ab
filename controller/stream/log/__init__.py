"""The topics of the log, and the local copy of each partition."""
