"""Folds of events to rows: topics, requests, brokers."""
