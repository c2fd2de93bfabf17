"""The pages: each file answers the requests of one page."""
