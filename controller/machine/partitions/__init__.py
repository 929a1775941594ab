"""Replicas, leaders, in-sync sets: placed, elected, changed."""
