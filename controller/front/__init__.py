"""The port: what APIs and HTTP may use of a controller, whichever process answers."""
