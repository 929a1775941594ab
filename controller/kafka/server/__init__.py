"""Sockets, TLS, connections and the order of answers."""
