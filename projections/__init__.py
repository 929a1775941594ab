"""The read side: views, queries and replay."""
