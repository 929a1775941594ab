"""Pages for people, at the paths of the JSON and made of the same answers: a page a handler."""
