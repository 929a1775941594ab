"""What somebody else decided, found in the metadata log and said as events."""
