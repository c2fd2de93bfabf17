"""Protection of the pages: origin, token, and limits of requests."""
