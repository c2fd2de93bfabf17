"""BM25 with the stemmer and stop words of a language, as model folders without a graph: ``--weights bm25-german``."""
