"""Results: hits, explanations, highlights, notices."""
