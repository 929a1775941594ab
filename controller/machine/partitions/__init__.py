"""Replica placement, leader election and ISR changes."""
