"""Models of dense vectors: one or two encoders that turn a text into a vector, their inputs, candidate lists and evaluation."""
