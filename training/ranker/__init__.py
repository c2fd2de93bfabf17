"""Rankers: a cross-encoder that reads a question with each candidate, its inputs, candidate lists and evaluation."""
