"""Models of dense vectors: one or two encoders that turn a text into a vector, their texts, candidate lists and labels."""
