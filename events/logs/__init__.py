"""Logs of events: in memory, in RocksDB, in a Kafka topic."""
