"""A Kafka cluster as the target of decisions."""
