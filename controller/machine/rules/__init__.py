"""The rules for changes of topics: text in the state, read, and applied to each change."""
