"""The machine over Kafka: workers decide commands from a topic, gateways serve clients."""
