"""Benchmarks: each prints a table, or JSON with `--json`, next to Kafka's figure if there is one."""
