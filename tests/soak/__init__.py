"""Half an hour of a whole cluster under load: real clients, processes and brokers, kills from a seed, a growing log.

`make soak`, or `python -m tests.soak --minutes 30 --seed N`. docs/testing.md describes the processes and the checks.
"""
