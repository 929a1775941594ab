"""Who carries decisions out: the port, simulated brokers, a Kafka cluster, real brokers."""
