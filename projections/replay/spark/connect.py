"""Telling Spark Connect from a session with a Java process of its own."""

from __future__ import annotations

from pyspark.sql import SparkSession


def is_connect(session: SparkSession) -> bool:
    """Whether a session reaches Spark through Spark Connect, and so has no Java process of its own."""
    return type(session).__module__.startswith("pyspark.sql.connect")
