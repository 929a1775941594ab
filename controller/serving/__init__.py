"""Puts a process together: settings to services, listeners, log lines, start and end."""
