"""Simulation of the quorum's consensus: virtual time, an unreliable network, disks that lose unflushed batches."""
