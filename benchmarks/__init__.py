"""Benchmarks: each prints a table, and JSON with `--json`, beside Kafka's own figure where there is one."""
