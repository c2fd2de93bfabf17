"""Filters: which documents may be found. The grammar, its clauses for the server, and the option of a search."""
