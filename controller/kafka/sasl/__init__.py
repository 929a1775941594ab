"""SASL, the server's side: one conversation a mechanism, and the gate before a connection's requests."""
