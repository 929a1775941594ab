"""The commands and events topics, and what workers and fronts share of them."""
