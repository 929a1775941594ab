"""Bytes and sockets without meaning: codec, messages, connections, logins."""
