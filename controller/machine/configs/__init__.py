"""Topic and broker configs: which there are, what values they take, how they change."""
