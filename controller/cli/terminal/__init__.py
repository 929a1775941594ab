"""Words as people type and read them: flags, times, tables, colour, a pager."""
