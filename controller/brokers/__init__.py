"""The broker port and its three kinds: simulated brokers, a target Kafka cluster, Kafka brokers in KRaft mode."""
