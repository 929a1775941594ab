"""The pure state machine: commands in, events and answers out. No clock, no chance, no I/O."""
