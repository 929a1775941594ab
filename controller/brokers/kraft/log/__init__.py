"""Kafka's metadata log as a projection of the events."""
