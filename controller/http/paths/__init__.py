"""The paths of HTTP: a handler for each, and nothing that another path needs."""
