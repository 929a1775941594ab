"""The archive of a log: complete segments in a folder or an object store."""
