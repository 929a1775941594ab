"""Questions about a log, now and at any moment."""
