"""Rewriting of queries as people type them: phrases and exclusions, misspelt words, synonyms, pinned documents."""
