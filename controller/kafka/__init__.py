"""The wire: codec, messages, connections and logins. The meaning of requests is in `controller.apis`."""
