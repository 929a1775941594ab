"""What a service does with its history beside deciding: the tree and its signed heads, the archive."""
