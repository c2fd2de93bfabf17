"""Training data: data sets, pairs, click logs, pseudo-queries, negatives, teacher scores."""
