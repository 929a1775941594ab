"""The catalog of events, their canonical bytes, and the logs that store them."""
