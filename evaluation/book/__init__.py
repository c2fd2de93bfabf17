"""Books of judgements: queries whose documents people have graded, stored in the cluster beside the index."""
