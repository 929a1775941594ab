"""Messages to bytes and back, compiled from Kafka's schemas."""
