"""The invariants: a second witness that never imports the machine's rules."""
