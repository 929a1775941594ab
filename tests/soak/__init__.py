"""The whole of it for half an hour: real clients, real processes, real brokers, kills from a seed, a log that grows.

`make soak`, or `python -m tests.soak --minutes 30 --seed N`. docs/testing.md says what runs and what must hold.
"""
