"""One Kafka API a file: requests to commands or reads, answers to responses."""
