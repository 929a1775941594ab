"""Text for people: events as sentences, names, points in time."""
