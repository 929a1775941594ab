"""Group commit: decides commands, records events, answers requests; deadlines, policies and log lines."""
