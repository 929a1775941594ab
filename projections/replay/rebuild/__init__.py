"""State from events alone, and how it compares with live state."""
