"""Renderings of results for people: HTML."""
