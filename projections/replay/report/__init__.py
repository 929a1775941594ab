"""The history of a log as one HTML page."""
