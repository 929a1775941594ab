"""The controller's state machine, without I/O: `decide` turns commands into events, `apply` turns events into state."""
