"""Retrieval: requests to the server, and the candidates that the server returns."""
