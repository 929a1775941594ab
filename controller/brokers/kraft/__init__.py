"""Kafka brokers in KRaft mode, with Topicwright as their controller."""
