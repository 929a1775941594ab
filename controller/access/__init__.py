"""Who may, and how much: authorizer, users, refusals, mutation quotas."""
