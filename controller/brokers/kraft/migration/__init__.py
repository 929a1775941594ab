"""Migration of the metadata log from Kafka's own controller, and back."""
