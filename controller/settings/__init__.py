"""Settings: declarations, parsing and validation."""
