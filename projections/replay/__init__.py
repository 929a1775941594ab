"""Replay: Spark rebuilds, proves and questions the history. Importing this package does not load Spark."""
