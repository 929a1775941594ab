"""The commands and events topics, and what workers and gateways share of them."""
