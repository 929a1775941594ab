"""State beside the log: what the machine reads, what readers see."""
