"""`termweave serve`: web pages and a JSON API on the indices of a server (extra `ui`)."""
