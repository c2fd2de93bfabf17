"""The results of a search: hits, explanations, highlights, remarks."""
