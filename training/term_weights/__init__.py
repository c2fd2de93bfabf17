"""Models of term weights: inputs, batches, hidden states, evaluation."""
