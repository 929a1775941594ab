"""Kafka's metadata log: its records, batches and image, and its projection from events."""
