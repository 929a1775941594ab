"""Real brokers that take Topicwright for their KRaft controller."""
