"""The order of candidates. This package sends no requests."""
