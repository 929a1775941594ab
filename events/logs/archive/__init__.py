"""The archive of a log: closed segments of it in a folder or an object store, and reading them as the log."""
