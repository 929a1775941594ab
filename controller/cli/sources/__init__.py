"""Where the query commands get their answers: a running service over HTTP, or the folder of a stopped one."""
