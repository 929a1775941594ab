"""Answers to real brokers, on the controller listener of `--brokers kraft`."""
