"""Text analysis: cutting texts into words, terms and word-pieces, and telling whether a model covers a language."""
