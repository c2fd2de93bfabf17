"""Protection of the pages: checks of the origin of requests and of the token, and limits on requests."""
