"""What commands do that are more than a read or a start: each is loaded only when it runs."""
