"""The version of Topicwright. The build (pyproject.toml), the CLI, HTTP and ApiVersions requests read it here."""

RELEASE = "0.1.0"
"""Recorded in the log with the settings that decisions depend on, and printed by `topicwright --version`."""
