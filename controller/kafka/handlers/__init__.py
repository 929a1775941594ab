"""One handler a file: each turns one API's requests into commands or reads, and answers into that API's response."""
