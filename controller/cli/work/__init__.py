"""Commands that do more than read or start; each module is loaded only when its command runs."""
