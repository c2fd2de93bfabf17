"""Models of term weights: texts, batches, hidden states."""
