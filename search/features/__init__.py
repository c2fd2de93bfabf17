"""Features of a search, one file each: their options, and their step on the way of a query (`search.feature`)."""
