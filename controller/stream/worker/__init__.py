"""Workers: each decides the commands of the partitions that it owns."""
