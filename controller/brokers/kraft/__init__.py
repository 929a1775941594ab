"""Real, unmodified Kafka brokers that take Topicwright for their KRaft controller."""
