"""Answers as JSON: its types, and how they are filled."""
