"""Text analysis: words, terms, word-pieces, and whether a model covers a language."""
