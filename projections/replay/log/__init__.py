"""Reads a log, or a part of it, from disk or from Kafka."""
