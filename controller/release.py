"""The version of Topicwright: pyproject.toml takes the distribution's version from here."""

RELEASE = "0.1.0"
"""Recorded in the log with the settings that decisions depend on, and printed by `topicwright --version`."""
