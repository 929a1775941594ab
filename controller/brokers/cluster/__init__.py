"""A running Kafka cluster whose own controller carries decisions out."""
