"""SASL of the server: a conversation for each mechanism, and the gate that admits requests after a login."""
