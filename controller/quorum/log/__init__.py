"""Kafka's metadata log: its batches, the codec of its records, and its image."""
