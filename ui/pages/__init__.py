"""The web pages: each module answers the requests of one page, or of several similar pages."""
