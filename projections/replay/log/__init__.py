"""Which log, which stretch of it, as it is on disk or in Kafka."""
