"""Events in words: why is it so."""
