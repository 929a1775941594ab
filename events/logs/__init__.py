"""The logs that keep events: in memory, in RocksDB, in a Kafka topic."""
