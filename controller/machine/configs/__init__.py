"""Topic, broker and group configs: tables, values, validation and changes."""
