"""Features of a search, one file each: the feature's options, and its steps while a query is answered (`search.feature`)."""
