"""The `topicwright` command: arguments in, text out."""
