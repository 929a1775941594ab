"""The quorum's consensus in virtual time, on a bad network, on disks that forget."""
