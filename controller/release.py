"""The release that this code is of: pyproject.toml takes the distribution's version from here."""

RELEASE = "0.1.0"
"""Recorded with the settings that decide, and shown by `topicwright --version`."""
