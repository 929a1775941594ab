"""Words in, words out: one sub-command a file."""
