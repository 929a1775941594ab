"""The consensus of KRaft as a state machine without I/O. Begin with `consensus`."""
