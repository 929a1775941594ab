"""A worker: owns partitions, decides their commands, and watches what is due."""
