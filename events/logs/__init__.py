"""Logs of events: in RocksDB, in a Kafka topic, in an archive."""
