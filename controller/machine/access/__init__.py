"""Deciding on access control entries, logins and quotas."""
