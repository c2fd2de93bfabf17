"""Preparation of a corpus before it is encoded: corpus pass, passages, language check, user mappings."""
