"""A cluster comes from Kafka's own controller, and goes back to it."""
