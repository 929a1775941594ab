"""A voter among Kafka's controllers (KIP-595, KIP-853): its log, its consensus, its peers."""
