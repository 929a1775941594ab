"""The machine over Kafka: the log in two topics, the workers that decide, the gateways that clients reach."""
