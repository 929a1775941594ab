"""Tables of settings to checked values."""
