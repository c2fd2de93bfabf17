"""Rankers: a cross-encoder that reads a question with each candidate, its first stage and its texts."""
