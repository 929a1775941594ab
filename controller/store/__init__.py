"""State, indexes and Merkle tree, written in one batch with the events."""
