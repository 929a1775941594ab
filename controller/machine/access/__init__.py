"""ACLs, SCRAM credentials and quotas."""
