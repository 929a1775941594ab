"""One path of the HTTP API a handler."""
