"""Queries as people type them: phrases and exclusions, misspelt words, synonyms."""
