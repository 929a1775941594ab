"""Imports the decisions of other controllers from the metadata log, as events."""
