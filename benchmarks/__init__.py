"""Benchmarks: each prints a table, and JSON with `--json`, next to Kafka's own figure if there is one."""
