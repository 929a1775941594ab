"""Queries on a log, now and at any point in time; they return views."""
