"""Authorization, users, mutation quotas, and records of refused requests."""
