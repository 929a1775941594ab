"""Shared by tests: processes, a raw wire client, the servers under test, and tools that run real clients."""
