"""The APIs of the controller listener, which real brokers speak."""
