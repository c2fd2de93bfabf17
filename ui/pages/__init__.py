"""The pages: a file answers the requests of one page, or of pages of one kind."""
