"""What leaves a log for its archive, and a log that comes back from one."""
