"""The term-weights family: inputs, batches, hidden states, evaluation."""
