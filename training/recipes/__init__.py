"""Recipes of the models that ship with termweave."""
