"""Retrieval: requests to the server and the candidates that come back."""
